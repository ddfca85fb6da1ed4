package telemetry

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
)

// ofQueues returns the values of watched queues.
func ofQueues(tally *Tally) []string {
	return showAll(tally.queues.readAll(context.Background()))
}

func TestQueuesAreReadWhenTheyAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tally := newTally(t, nil)
		require.Empty(t, ofQueues(tally))
		came := time.Now()
		require.NoError(t, tally.WatchQueue(event.FairMutex, "reports", func(_ context.Context, skip, show int) ([]lock.Waiter, int, error) {
			require.Equal(t, []int{0, 1}, []int{skip, show})
			return []lock.Waiter{{Since: came}}, 5, nil
		}))
		require.NoError(t, tally.WatchQueue(event.Semaphore, "reports", func(context.Context, int, int) ([]lock.Waiter, int, error) {
			return nil, 0, nil
		}))
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{
			"redlatch.queue.length 5 [fair_mutex reports]", "redlatch.queue.oldest_wait 3 [fair_mutex reports]",
			"redlatch.queue.length 0 [semaphore reports]", "redlatch.queue.oldest_wait 0 [semaphore reports]",
		}, ofQueues(tally))
		came = came.Add(time.Hour) // the server's clock is ahead
		require.Equal(t, "redlatch.queue.oldest_wait 0 [fair_mutex reports]", ofQueues(tally)[1])
	})
}

// All that goes wrong is counted, and the values are missing meanwhile. A server that hangs
// occupies one goroutine, however often metrics are collected, and no collection waits longer than
// the timeout.
func TestQueuesThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tally := newTally(t, nil)
		var read ReadQueue
		var reads atomic.Int64
		require.NoError(t, tally.WatchQueue(event.FairMutex, "reports", func(ctx context.Context, skip, show int) ([]lock.Waiter, int, error) {
			reads.Add(1)
			return read(ctx, skip, show)
		}))
		read = func(context.Context, int, int) ([]lock.Waiter, int, error) { return nil, 0, lockerr.ErrUnavailable }
		require.Equal(t, []string{"redlatch.queue.read_failures 1 [fair_mutex reports unavailable]"}, ofQueues(tally))
		read = func(context.Context, int, int) ([]lock.Waiter, int, error) { panic("a hook of the program") }
		require.Equal(t, "redlatch.queue.read_failures 1 [fair_mutex reports _OTHER]", ofQueues(tally)[0])
		read = func(context.Context, int, int) ([]lock.Waiter, int, error) { runtime.Goexit(); return nil, 0, nil }
		require.Equal(t, "redlatch.queue.read_failures 2 [fair_mutex reports _OTHER]", ofQueues(tally)[0])
		read = func(ctx context.Context, _, _ int) ([]lock.Waiter, int, error) {
			<-ctx.Done()
			return nil, 0, ctx.Err()
		}
		require.Contains(t, ofQueues(tally), "redlatch.queue.read_failures 1 [fair_mutex reports timeout]")

		synctest.Wait()
		reads.Store(0)
		hung := make(chan struct{})
		read = func(context.Context, int, int) ([]lock.Waiter, int, error) { <-hung; return nil, 7, nil }
		for range 5 {
			before := time.Now()
			require.NotContains(t, ofQueues(tally)[0], "length")
			require.Equal(t, time.Second, time.Since(before))
		}
		require.EqualValues(t, 1, reads.Load())
		close(hung)
		synctest.Wait()
		require.Equal(t, "redlatch.queue.length 7 [fair_mutex reports]", ofQueues(tally)[0], "and it goes on")
	})
}

func TestQueuesThatCannotBeWatched(t *testing.T) {
	tally := newTally(t, nil)
	none := func(context.Context, int, int) ([]lock.Waiter, int, error) { return nil, 0, errors.New("not called") }
	require.NoError(t, tally.WatchQueue(event.FairMutex, "reports", none))
	require.NoError(t, tally.WatchQueue(event.Semaphore, "reports", none), "another kind")
	for _, err := range []error{
		tally.WatchQueue(event.FairMutex, "reports", none), tally.WatchQueue(event.FairMutex, "", none), tally.WatchQueue(event.FairMutex, "a", nil),
	} {
		var refused *lockerr.ConfigError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "queue", refused.Setting)
	}
	_, err := NewTally(Config{QueueTimeout: time.Microsecond})
	require.ErrorIs(t, err, lockerr.ErrConfig)
}
