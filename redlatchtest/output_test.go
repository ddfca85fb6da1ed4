package redlatchtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A client may still log when its test has ended. Writing to that test would end the process.
func TestOutputOfATestThatHasEnded(t *testing.T) {
	t.Parallel()
	var o *output
	t.Run("the test", func(t *testing.T) {
		o = &output{t: t}
		o.close()
	})
	n, err := o.Write([]byte("a line\n"))
	require.NoError(t, err)
	require.Equal(t, 7, n)
}
