package watchdog

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A lease that is always extended in time stays, and is lost a lease after the last time.
func TestRenewUntilMovesTheEndOfTheMaximumHoldTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		n := &news{}
		s := spec("a", n)
		s.MaxHold = time.Minute
		l := w.Watch(s)
		for range 10 {
			sleep(50 * time.Second)
			require.False(t, l.MaxHoldOver())
			l.RenewUntil(time.Now().Add(time.Minute))
		}
		last := time.Now().Add(time.Minute)
		require.Empty(t, n.received())
		sleep(time.Minute + lease)
		require.True(t, l.MaxHoldOver())
		require.Equal(t, []Reason{MaxHoldReached}, n.received())
		for _, a := range srv.since(0) {
			require.Equal(t, a.at.Before(last), a.batch[0].Lease > 0)
		}
		l.RenewUntil(time.Now().Add(time.Minute)) // too late
		sleep(lease)
		require.Len(t, n.received(), 1)
	})
}

// The time was over, and the lease is about to end. The watchdog must not wait for its next look.
func TestRenewUntilRenewsAtOnceIfTheTimeWasOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		s := spec("a", nil)
		s.MaxHold = time.Second
		l := w.Watch(s)
		sleep(trust - time.Second)
		before := srv.count()
		l.RenewUntil(time.Now().Add(time.Minute))
		synctest.Wait()
		require.Len(t, srv.since(before), 1)
		require.Equal(t, lease, srv.last().batch[0].Lease)
		require.True(t, l.Trusted())
		l.RenewUntil(time.Now().Add(2 * time.Minute)) // in time: nothing to hurry
		synctest.Wait()
		require.Len(t, srv.since(before), 1)
		l.RenewUntil(time.Now()) // ends it
		require.True(t, l.MaxHoldOver())
	})
}

// A look is in flight, which extends nothing. The renewal comes right after it.
func TestRenewUntilDuringALookRenewsAfterIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		s := spec("a", nil)
		s.MaxHold = time.Second
		l := w.Watch(s)
		looked := make(chan struct{})
		srv.set(func(_ context.Context, _ Group, batch []Renewal) ([]Result, error) {
			if batch[0].Lease == 0 {
				<-looked
			}
			return yes(batch), nil
		})
		for srv.count() == 0 {
			sleep(time.Second)
		}
		l.RenewUntil(time.Now().Add(time.Minute))
		before := srv.count()
		close(looked)
		synctest.Wait()
		require.Equal(t, before+1, srv.count())
		require.Equal(t, lease, srv.last().batch[0].Lease)
	})
}
