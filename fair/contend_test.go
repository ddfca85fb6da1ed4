package fair_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/fair"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// The owner may get the lock by another call just after a request found that it did not have it.
// The request must re-enter then. In the queue it would wait for its own owner.
func TestARequestDoesNotQueueBehindItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, redistest.Bubble(t)).FairMutex("orders")
		h, err := m.Lock(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, fair.Contend(ctx, m), mutex.ErrBeginAnew)
		_, length, err := m.Queue(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Zero(t, length)
		require.NoError(t, h.Unlock(t.Context()))
	})
}
