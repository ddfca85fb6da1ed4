//go:build unix

package chaos_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Histories during which nothing bit do not count, and are not made for ever.
func TestHistoriesHaveToMeetTheFault(t *testing.T) {
	var bites, made atomic.Int64
	bitten := func() int { return int(bites.Load()) }
	bites.Add(7) // before them

	done, met := meet(5, bitten, func(int) { made.Add(1) })
	require.Equal(t, []int{100, 0}, []int{done, met})
	require.EqualValues(t, 100, made.Load())

	done, met = meet(1, bitten, func(n int) {
		if n == 4 {
			bites.Add(1)
		}
	})
	require.Equal(t, []int{4, 1}, []int{done, met})
}

// A lock that is left is found by its name; what is kept by design is none.
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
