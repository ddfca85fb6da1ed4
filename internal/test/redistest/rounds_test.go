package redistest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestRoundsAreAllInVerify(t *testing.T) {
	t.Setenv("REDLATCH_FULL", "")
	require.Equal(t, 3, redistest.Rounds(3, 70))
	t.Setenv("REDLATCH_FULL", "1")
	require.Equal(t, 70, redistest.Rounds(3, 70))
}
