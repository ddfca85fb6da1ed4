package reentrant

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/owner"
)

// The turn goes on in order of arrival, whoever gives up in between, and one whose hand-over
// failed is the next.
func TestTheLocalLockIsPassedOnInOrder(t *testing.T) {
	l := &localQueue{LockState: &mutex.LockState{}, localLocked: true}
	var queue []*waiter
	for range 2000 {
		switch rand.N(5) {
		case 0, 1, 2:
			w, localLock := l.lockOrEnqueue(&request{Request: mutex.Request{Owner: owner.New()}})
			require.False(t, localLock)
			queue = append(queue, w)
		case 3:
			if len(queue) > 0 {
				i := rand.N(len(queue))
				_, got := l.cancelWait(queue[i])
				require.False(t, got)
				require.False(t, l.withdraw(queue[i]))
				queue = slices.Delete(queue, i, i+1)
			}
		default:
			w := l.next()
			if len(queue) == 0 {
				require.Nil(t, w)
				break
			}
			require.Same(t, queue[0], w)
			k := &backend{request: &request{queue: l}}
			if rand.N(2) == 0 {
				_, _ = l.cancelWait(w)
			}
			k.requeue(w)
			if w.canceled {
				queue = queue[1:]
			}
		}
	}
	require.Equal(t, len(queue), l.waiters.Len())
}
