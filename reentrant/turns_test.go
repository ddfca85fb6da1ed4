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
func TestTheTurnGoesOnInOrder(t *testing.T) {
	l := &local{LockState: &mutex.LockState{}, taken: true}
	var queue []*waiter
	for range 2000 {
		switch rand.N(5) {
		case 0, 1, 2:
			w, turn := l.join(&request{Request: &mutex.Request{Owner: owner.New()}})
			require.False(t, turn)
			queue = append(queue, w)
		case 3:
			if len(queue) > 0 {
				i := rand.N(len(queue))
				_, got := l.leave(queue[i])
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
			k := &backend{request: &request{l: l}}
			if rand.N(2) == 0 {
				_, _ = l.leave(w)
			}
			k.requeue(w)
			if w.left {
				queue = queue[1:]
			}
		}
	}
	require.Equal(t, len(queue), l.queue.Len())
}
