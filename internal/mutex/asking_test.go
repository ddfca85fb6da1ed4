package mutex

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// asking calls play with two clients of one server.
func asking(t *testing.T, play func(v *redistest.Virtual, c, other *client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		open := func() *client {
			rdb := v.Client()
			c := &client{t: t}
			c.Registry = NewRegistry(session.New(session.Config{Redis: rdb, Deployment: node.Deployment{PubSub: node.SubscriberOf(rdb)}}))
			return c
		}
		c, other := open(), open()
		play(v, c, other)
		for _, c := range []*client{c, other} {
			c.Session.BeginClose()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			require.NoError(t, c.Session.FinishClose(ctx))
		}
	})
}

// acquire asks for the lock with a request of its own.
func (c *client) acquire(holds int) (*Request, string, error) {
	w := c.request(settings.Default)
	id := w.NewAcquisitionID()
	_, err := w.Acquire(context.Background(), id, holds, nil)
	return w, id, err
}

func runs(script string) func([]string) bool {
	return func(cmd []string) bool { return lua.ScriptName(cmd) == script }
}

// An earlier request of a wait may have got the lock under an id that was given up. The wait must
// say so until Redis names a holder of another client.
func TestAHolderOfAnotherClientEndsTheDoubt(t *testing.T) {
	asking(t, func(v *redistest.Virtual, c, other *client) {
		first, id, err := c.acquire(1)
		require.NoError(t, err)
		w := c.request(settings.Default)
		doubt := func() bool { return w.NewWaitOperation().MaybeApplied }
		ask := func(holds int) {
			_, err := w.Acquire(context.Background(), w.NewAcquisitionID(), holds, nil)
			require.NoError(t, err)
		}
		w.NoteExpired(session.ErrWindowExpired)
		ask(1)
		require.True(t, doubt(), "the holder may be what the wait got")
		_, err = first.Release(context.Background(), id, 0)
		require.NoError(t, err)

		stranger, id, err := other.acquire(1)
		require.NoError(t, err)
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		v.Inject(redistest.Rule{Match: runs("mutex/acquire"), Times: 1, Action: redistest.Swallow()}) // an answer might come all the same
		_, err = w.Acquire(cancelled, w.NewAcquisitionID(), 1, nil)
		require.Error(t, err)
		require.True(t, doubt(), "Redis did not answer")
		ask(2)
		require.True(t, doubt(), "it was no request for a fresh grant")
		ask(1)
		require.False(t, doubt())
		_, err = stranger.Release(context.Background(), id, 0)
		require.NoError(t, err)
		for _, w := range []*Request{first, w, stranger} {
			w.Close()
		}
	})
}

// A lock that an unanswered request got stands for a lease. A request for a fresh grant ends before
// that. A re-entry asks for what the acquisition has already.
func TestOnlyAFreshGrantHasAWindow(t *testing.T) {
	asking(t, func(v *redistest.Virtual, c, _ *client) {
		v.Inject(redistest.Rule{Match: runs("mutex/acquire"), Action: redistest.Swallow()})
		for holds, expires := range map[int]bool{1: true, 2: false} {
			w := c.request(settings.Default)
			ctx, cancel := context.WithTimeout(context.Background(), 2*w.Settings.Lease)
			defer cancel()
			_, err := w.Acquire(ctx, w.NewAcquisitionID(), holds, nil)
			require.Equal(t, expires, w.NoteExpired(err), err)
			require.Equal(t, !expires, ctx.Err() != nil)
			w.Close()
		}
	})
}

// A refusal ends a request at once. A release is sent again, because a permission may come back.
func TestARefusedReleaseIsSentAgain(t *testing.T) {
	asking(t, func(v *redistest.Virtual, c, _ *client) {
		once := func(script string) *redistest.Fault {
			return v.Inject(redistest.Rule{Match: runs(script), Times: 1, Action: redistest.Refuse("NOPERM no permission")})
		}
		once("mutex/acquire")
		w, _, err := c.acquire(1)
		require.ErrorIs(t, err, lockerr.ErrRefused)
		w.Close()
		w, id, err := c.acquire(1)
		require.NoError(t, err)
		refused := once("mutex/release")
		_, err = w.Release(context.Background(), id, 0)
		require.NoError(t, err)
		require.Equal(t, 1, refused.Bites())
		w.Close()
	})
}

// The next heartbeat of the first waiter does what a refused grant does not.
func TestARefusedGrantToTheQueueIsNotSentAgain(t *testing.T) {
	asking(t, func(v *redistest.Virtual, c, _ *client) {
		w := c.request(settings.Default)
		refused := v.Inject(redistest.Rule{Match: runs("fair/leave"), Action: redistest.Refuse("NOPERM no permission")})
		w.GrantQueued(context.Background(), w.NewOperation("unlock"))
		require.Equal(t, 1, refused.Bites())
		w.Close()
	})
}

// The answer to a release may arrive when the context of its Unlock ends. The background then
// serves the queue, and Unlock does not wait for it.
func TestTheQueueIsServedAfterTheEndOfAContext(t *testing.T) {
	asking(t, func(v *redistest.Virtual, c, _ *client) {
		w := c.request(settings.Default)
		ended, end := context.WithCancel(context.Background())
		end()
		lost := v.Inject(redistest.Rule{Match: runs("fair/leave"), Times: 1, Action: redistest.CutReply()})
		began := time.Now()
		w.GrantQueued(ended, w.NewOperation("unlock"))
		require.Zero(t, time.Since(began))
		synctest.Wait()
		require.Equal(t, 1, lost.Bites())
		w.Close()
	})
}

func TestAForcedReleaseThatIsRefusedNamesNobody(t *testing.T) {
	asking(t, func(v *redistest.Virtual, c, other *client) {
		w, id, err := c.acquire(1)
		require.NoError(t, err)
		core := other.NewCore("orders", new(settings.Default))
		v.Inject(redistest.Rule{Match: runs("mutex/force_release"), Action: redistest.Refuse("NOPERM no permission")})
		for _, expected := range []string{"", id, "somebody"} {
			who, err := core.ForceRelease(context.Background(), expected,
				func(ctx context.Context, rdb lua.Redis, target string) (lua.ForceReleaseReply, error) {
					return lua.ForceRelease(ctx, rdb, lua.ForceReleaseParams{LockKey: core.Keys.Lock, QueueKey: core.Keys.Queue, Expected: target, Channel: core.Keys.Channel})
				})
			require.ErrorIs(t, err, lockerr.ErrRefused)
			require.NotContains(t, err.Error(), "not a mutex")
			require.Empty(t, who)
		}
		_, err = w.Release(context.Background(), id, 0)
		require.NoError(t, err)
		w.Close()
	})
}
