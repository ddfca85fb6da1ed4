package acquisition_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// A hold may last for days, and every request of a server may bind a context to it. The hold
// forgets each when it has ended, in whichever order, and ends the others.
func TestAHoldForgetsContextsThatHaveEnded(t *testing.T) {
	const most = 4
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2}, {0}, {3}, {}} {
		for _, how := range []string{"cancel", "end of the parent", "both"} {
			inBubble(t, func(s *scene) {
				h, _ := s.start()
				var all []context.Context
				var cancels, ends []context.CancelFunc
				for range most {
					parent, end := context.WithCancel(s.t.Context())
					ctx, cancel := h.Bind(parent)
					all, cancels, ends = append(all, ctx), append(cancels, cancel), append(ends, end)
				}
				require.Equal(s.t, most, h.Contexts())
				for n, i := range order {
					if how != "cancel" {
						ends[i]()
						synctest.Wait()
					}
					if how != "end of the parent" {
						cancels[i]()
					}
					for _, earlier := range order[:n] {
						cancels[earlier]() // again
					}
					require.Error(s.t, all[i].Err())
					require.Equal(s.t, most-n-1, h.Contexts())
				}
				for i, ctx := range all {
					require.Equal(s.t, slices.Contains(order, i), ctx.Err() != nil)
				}
				s.unlock(h)
				require.Zero(s.t, h.Contexts())
				for i, ctx := range all {
					require.Error(s.t, ctx.Err())
					cancels[i]()
					ends[i]()
				}
			})
		}
	}
}
