package sender_test

import (
	"testing"

	"github.com/redlatch/redlatch/internal/test/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }
