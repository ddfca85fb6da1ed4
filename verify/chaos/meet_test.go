//go:build unix

package chaos_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Histories in which no fault bit do not count, and meet does not make them for ever.
func TestHistoriesHaveToMeetTheFault(t *testing.T) {
	made, bitten := meet(5, func(int) int { return 0 })
	require.Equal(t, []int{100, 0}, []int{made, bitten})

	made, bitten = meet(2, func(n int) int { return n % 4 })
	require.Equal(t, []int{3, 2}, []int{made, bitten}, "the second and the third")
}

// lockKeys finds a lock that is left by its name. Keys that Redis keeps by design do not count.
func TestLocksThatAreLeftAreCounted(t *testing.T) {
	for _, p := range primitives {
		t.Run(p.name, func(t *testing.T) {
			s := (&course{T: t, scale: scales["tiny"]}).stand()
			h, err := p.lock(s.client(), historyName(7)).Lock(context.Background())
			require.NoError(t, err)
			require.Positive(t, s.lockKeys(historyName(7)))
			require.Zero(t, s.lockKeys(historyName(77)))
			require.NoError(t, h.Unlock(context.Background()))
			require.Zero(t, s.lockKeys(historyName(7)))
		})
	}
}
