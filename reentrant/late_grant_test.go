package reentrant

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
)

// bubbleManager is a manager in a bubble, which closes with the test.
func bubbleManager(t *testing.T) (*redistest.Virtual, *manager) {
	v := redistest.Bubble(t)
	rdb := v.Client()
	client := session.New(session.Config{Redis: rdb, Deployment: node.Deployment{PubSub: node.SubscriberOf(rdb)}, Log: slog.Default()})
	f := newManager(mutex.NewRegistry(client))
	t.Cleanup(func() {
		client.BeginClose()
		_ = acquisition.CloseAll(context.Background(), f.registry.Held())
		_ = client.FinishClose(context.Background())
	})
	return v, f
}

// The process was stopped between the hand-over and the waking of the waiter, for
// longer than the lease. The waiter never had the lock, and lost none.
func TestFreshWaiterIsNotNotifiedOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, f := bubbleManager(t)
		m := f.newMutex("x", new(settings.Default))
		h, err := m.Lock(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		ctx := owner.NewContext(context.Background(), owner.New())
		res := make(chan error, 1)
		go func() { _, err := m.Lock(ctx); res <- err }()
		synctest.Wait()
		l := f.use("x")
		w := l.next()
		// granted 40 s ago: the process was stopped in between
		g := w.request.startHold(acquisition.Grant{ID: w.request.NewAcquisitionID(), Fence: 1, Sent: time.Now().Add(-40 * time.Second)}, false, mutex.Now())
		synctest.Wait() // the watchdog has notified
		l.deliver(w, g)
		go func() { time.Sleep(time.Second); _ = h.Unlock(context.Background()) }()
		err = <-res
		if err != nil {
			t.Fatal("a waiter that never held was notified:", err)
		}
	})
}

// The hold that a waiter gets has ended before, and Redis does not answer. The waiter returns when
// its wait ends.
func TestAnExpiredHandoffDoesNotOutlastTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, f := bubbleManager(t)
		m := f.newMutex("x", new(settings.Default))
		h, err := m.Lock(context.Background())
		require.NoError(t, err)
		waits := map[string]func() (context.Context, context.CancelFunc, *Mutex){
			"context": func() (context.Context, context.CancelFunc, *Mutex) {
				ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
				return ctx, cancel, m
			},
			"wait timeout": func() (context.Context, context.CancelFunc, *Mutex) {
				bounded := settings.Default
				bounded.WaitTimeout = 4 * time.Second
				return context.Background(), func() {}, f.newMutex("x", &bounded)
			},
			"wait deadline": func() (context.Context, context.CancelFunc, *Mutex) {
				return lock.WithWaitDeadline(context.Background(), time.Now().Add(4*time.Second)), func() {}, m
			},
		}
		for range 20 { // the watchdog may notify first, and then the test shows nothing
			for name, wait := range waits {
				ctx, cancel, m := wait()
				began, res := time.Now(), make(chan error, 1)
				go func() { _, err := m.Lock(owner.NewContext(ctx, owner.New())); res <- err }()
				synctest.Wait()
				l := f.use("x")
				w := l.next()
				time.Sleep(3 * time.Second)
				silent := v.Proxy.Inject(redistest.Rule{Match: redistest.Any(), Action: redistest.Swallow()})
				// The waiter has the hold before the watchdog knows that it has ended.
				l.deliver(w, w.request.startHold(acquisition.Grant{ID: w.request.NewAcquisitionID(), Fence: 1, Sent: time.Now().Add(-40 * time.Second)}, false, mutex.Now()))
				err := <-res
				require.Error(t, err, name)
				require.NotErrorIs(t, err, lockerr.ErrLost, name)
				var op *lockerr.OpError
				require.False(t, errors.As(err, &op) && op.Reentry, "%s: %v", name, err)
				require.Equal(t, 4*time.Second, time.Since(began), name)
				silent.Disarm()
				cancel()
				time.Sleep(10 * time.Second) // the background has unlocked
			}
		}
		require.NoError(t, h.Unlock(context.Background()))
	})
}

// The wait has ended before the waiter looks at the hold. The background unlocks it.
func TestAnUntrustedHoldIsUnlockedAfterTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, f := bubbleManager(t)
		m := f.newMutex("x", new(settings.Default))
		holder, err := m.Lock(context.Background())
		require.NoError(t, err)
		waits, cancel := context.WithCancel(context.Background())
		res := make(chan error, 1)
		go func() { _, err := m.Lock(waits); res <- err }()
		synctest.Wait()
		r := f.use("x").next().request
		h := r.startHold(acquisition.Grant{ID: r.NewAcquisitionID(), Fence: 1, Sent: time.Now()}, false, mutex.Now())
		cancel()
		require.Error(t, r.unlockUntrusted(waits, h))
		time.Sleep(time.Second)
		require.False(t, h.Trusted(), "nobody unlocked it")
		require.Error(t, <-res)
		require.NoError(t, holder.Unlock(context.Background()))
	})
}

// stopped is a context in which the process is stopped, for so long, between
// the answer of Redis and the moment in which its caller has it. Of the contexts
// of a call it is the one that is asked then whether it still lives.
type stopped struct {
	context.Context
	answered atomic.Bool // Redis has granted
	span     time.Duration
}

func (c *stopped) Err() error {
	if c.answered.CompareAndSwap(true, false) {
		time.Sleep(c.span)
	}
	return c.Context.Err()
}

// grantedHook is called with each acquisition that gets a grant.
type grantedHook func(acquisition string)

func (h grantedHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h grantedHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(h, next)
}
func (h grantedHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if c, ok := cmd.(interface{ Slice() ([]any, error) }); ok && err == nil {
			if fields, _ := c.Slice(); redistest.KeyCount(cmd.Args()) == 3 && fields[0] == int64(1) {
				h(cmd.Args()[6].(string))
			}
		}
		return err
	}
}

// The process was stopped between the grant and its arrival, until trust in the
// lease was over. That is no refusal: Lock and TryLock give the grant back, and ask again
// under a fresh id.
func TestGrantThatArrivesWithoutTrust(t *testing.T) {
	type asking = func(w *request, ctx context.Context) (*acquisition.Hold, error)
	play := func(t *testing.T, ask asking) {
		synctest.Test(t, func(t *testing.T) {
			v := redistest.Bubble(t)
			rdb := v.Client()
			client := session.New(session.Config{Redis: rdb, Deployment: node.Deployment{PubSub: node.SubscriberOf(rdb)}, Log: slog.Default()})
			f := newManager(mutex.NewRegistry(client))
			defer func() {
				client.BeginClose()
				_ = acquisition.CloseAll(context.Background(), f.registry.Held())
				_ = client.FinishClose(context.Background())
			}()
			m := f.newMutex("x", new(settings.Default))
			warm, err := m.Lock(context.Background()) // the server's clock is learned
			require.NoError(t, err)
			require.NoError(t, warm.Unlock(context.Background()))

			ctx := &stopped{Context: context.Background(), span: settings.Default.Lease - settings.Default.Margin()}
			var granted []string
			rdb.AddHook(grantedHook(func(id string) {
				granted = append(granted, id)
				ctx.answered.Store(len(granted) == 1)
			}))
			w := new(request)
			require.NoError(t, m.core.Begin(ctx, &w.Request))
			m.join(w)
			h, err := ask(w, ctx)
			require.False(t, ctx.answered.Load(), "the process was stopped")
			w.Close()
			synctest.Wait()
			require.NoError(t, err)
			require.True(t, h.Trusted())
			require.Len(t, granted, 2)
			require.Equal(t, h.A.ID, granted[1])
			require.NotEqual(t, h.A.ID, granted[0], "the first one may have ended by now")
			require.NoError(t, h.Unlock(context.Background()))
			require.False(t, v.Server.Exists("x"))
		})
	}
	t.Run("TryLock", func(t *testing.T) {
		play(t, (*request).try)
	})
	t.Run("Lock", func(t *testing.T) {
		play(t, func(w *request, ctx context.Context) (*acquisition.Hold, error) {
			require.True(t, w.queue.tryLock())
			return w.contend(ctx, w.NewSelfDeadlockWarning())
		})
	})
}
