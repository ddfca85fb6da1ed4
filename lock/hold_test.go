package lock

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Watched for becoming garbage, it would end the process then.
func TestAHoldOfNothingIsNotWatched(t *testing.T) {
	require.Equal(t, new(Hold), New(t.Context(), nil))
}
