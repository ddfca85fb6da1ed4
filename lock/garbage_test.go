package lock_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/reentrant"
)

// The runtime chooses when it collects garbage, so these tests run in real time. They wait for the
// line in the log. A test for a hold that must not be reported also has one that must.

func TestDroppedHoldIsReportedAndRunsOut(t *testing.T) {
	t.Parallel()
	g := newGarbage(t)
	name := redistest.Name(t)
	acquisition, site := stage.Drop(t, t.Context(), g.locks.Mutex(name))
	report := g.log.Collected(t, name)
	require.Equal(t, acquisition, report["acquisition"])
	require.Equal(t, site, filepath.Base(report["acquired_at"]), "where this test has acquired it")
	require.Contains(t, report["message"], "not renewed any more")
	g.gets(name)
}

// The collector works in real time, and in no bubble. It may find a hold of a bubble.
func TestHoldThatWasDroppedInABubbleIsReported(t *testing.T) {
	for _, kind := range []string{"mutex", "fair", "semaphore"} {
		t.Run(kind, func(t *testing.T) {
			log := &stage.Logbook{}
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				short := stage.LocksOn(t, s.Direct, redlatch.WithLease(time.Second), redlatch.WithoutRenewal())
				for _, locks := range []*redlatch.Client{short, s.Locks} {
					h, _, err := stage.Kinds[kind].Take(locks, t.Context())
					require.NoError(t, err)
					h.Context().Done()                  // makes a channel
					time.Sleep(1500 * time.Millisecond) // the short one is lost
				}
				for n := 0; len(s.Of(event.Leaked)) == 0; n++ {
					require.Less(t, n, 10_000, "it is not reported")
					runtime.GC()
					time.Sleep(time.Millisecond)
				}
				synctest.Wait()
				words := "a hold was dropped without Unlock; its lock is not renewed any more"
				if kind == "semaphore" {
					words = "a permit was dropped without Release; it is not renewed any more"
				}
				require.Contains(t, strings.Join(log.Lines(), "\n"), words)
				_, release, err := stage.Kinds[kind].Take(s.Other, t.Context())
				require.NoError(t, err, "it ends with its lease")
				require.NoError(t, release(t.Context()))
			}, redlatch.WithLogger(slog.New(log)))
		})
	}
}

//go:noinline
func contextOnly(t testing.TB, m *reentrant.Mutex, derive func(context.Context) context.Context) context.Context {
	return derive(stage.MustLock(t, context.Background(), m).Context())
}

func TestHoldWhoseContextIsInUseIsNoGarbage(t *testing.T) {
	t.Parallel()
	type key struct{}
	for name, derive := range map[string]func(context.Context) context.Context{
		"itself":    func(ctx context.Context) context.Context { return ctx },
		"WithValue": func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, 1) },
		"WithCancel": func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			_ = cancel // ended by the loss at the latest
			return ctx
		},
		"WithoutCancel": context.WithoutCancel,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGarbage(t)
			lockName := redistest.Name(t)
			ctx := contextOnly(t, g.locks.Mutex(lockName), derive)
			g.collector()
			require.NoError(t, ctx.Err())
			_, err := g.other.Mutex(lockName).TryLock(context.Background())
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			runtime.KeepAlive(ctx)
			if name == "WithCancel" {
				return // the context itself refers to its children until they are cancelled
			}
			ctx = nil //nolint:ineffassign,wastedassign // now it is garbage
			g.log.Collected(t, lockName)
			g.gets(lockName)
		})
	}
}

//go:noinline
func registerOnly(t testing.TB, m *reentrant.Mutex, f func()) (stop func() bool) {
	return context.AfterFunc(stage.MustLock(t, context.Background(), m).Context(), f)
}

// A program may keep only a function that should run when the lock is lost. The function could not
// run if the client dropped the hold.
func TestHoldWhoseEndIsWaitedForIsNoGarbage(t *testing.T) {
	t.Parallel()
	g := newGarbage(t)
	lost := make(chan struct{})
	name := redistest.Name(t)
	registerOnly(t, g.locks.Mutex(name), func() { close(lost) })
	g.collector()
	_, err := g.other.Mutex(name).ForceRelease(t.Context(), "")
	require.NoError(t, err)
	stage.Within(t, lost, "the function is called")

	name += " stopped"
	stop := registerOnly(t, g.locks.Mutex(name, forever), func() {})
	g.collector()
	require.True(t, stop())
	stop = nil //nolint:ineffassign,wastedassign // it refers to the context
	g.log.Collected(t, name)
}

// unlockInVain calls Unlock for a moment while another command of the acquisition hangs, and
// forgets the hold.
//
//go:noinline
func unlockInVain(t testing.TB, m *reentrant.Mutex, hang func() *redistest.Fault) {
	owner := redlatch.WithOwner(context.Background()) // not the context of the hold, which keeps the hold
	h := stage.MustLock(t, owner, m)
	hangs := hang()
	ctx, cancel := context.WithCancel(owner)
	go func() { hangs.Await(1); cancel() }() // when the re-entry is on its way
	_, err := m.Lock(ctx)
	require.ErrorIs(t, err, redlatch.ErrIndeterminate)
	hangs.Await(2) // the re-entry, and the number of holds that is sent right after it
	ctx, cancel = context.WithTimeout(owner, time.Millisecond)
	defer cancel()
	require.ErrorIs(t, h.Unlock(ctx), redlatch.ErrIndeterminate)
}

// A hold whose Unlock goes on in the background was not dropped without one.
func TestHoldThatIsBeingUnlockedIsNotReported(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	proxy := redistest.NewProxy(t, s.Addr())
	g := newGarbageOn(t, s, proxy.Client())
	name := redistest.Name(t)
	var hang *redistest.Fault
	unlockInVain(t, g.locks.Mutex(name), func() *redistest.Fault {
		hang = proxy.Inject(redistest.Rule{
			Match:  func(cmd []string) bool { return stage.AReentry(cmd) || stage.AnInnerOne(cmd) },
			Action: redistest.SilenceBoth(),
		})
		return hang
	})
	g.collector()
	hang.Disarm()
	g.gets(name)
	g.collector()
}

func TestNestedHoldDroppedWhileTheOuterLives(t *testing.T) {
	t.Parallel()
	g := newGarbage(t)
	name := redistest.Name(t)
	m := g.locks.Mutex(name, forever)
	outer := stage.MustLock(t, t.Context(), m)
	_, site := stage.Drop(t, outer.Context(), m)
	report := g.log.Collected(t, name)
	require.Equal(t, outer.ID(), report["acquisition"])
	require.Equal(t, site, filepath.Base(report["acquired_at"]))
	require.NotContains(t, report["message"], "not renewed")

	stage.AwaitRenewal(t, outer)
	require.NoError(t, outer.Unlock(t.Context()))
	isFree(t, g.other.Mutex(name))
}

//go:noinline
func dropOuter(t testing.TB, m *reentrant.Mutex) (inner *lock.Hold) {
	chain := redlatch.WithOwner(context.Background())
	stage.MustLock(t, chain, m)
	return stage.MustLock(t, chain, m)
}

func TestOuterHoldDroppedWhileTheNestedLives(t *testing.T) {
	t.Parallel()
	g := newGarbage(t)
	name := redistest.Name(t)
	inner := dropOuter(t, g.locks.Mutex(name, forever))
	g.log.Collected(t, name)
	stage.AwaitRenewal(t, inner)
	require.NoError(t, inner.Unlock(t.Context()))
	isFree(t, g.other.Mutex(name))
}

func isFree(t testing.TB, m *reentrant.Mutex) {
	t.Helper()
	h, err := m.TryLock(context.Background())
	require.NoError(t, err)
	require.NoError(t, h.Unlock(context.Background()))
}

//go:noinline
func useWell(t testing.TB, locks *redlatch.Client, name string) {
	ctx := context.Background()
	for i := range 100 {
		m := locks.Mutex(fmt.Sprintf("%s/%d", name, i))
		h := stage.MustLock(t, ctx, m)
		inner := stage.MustLock(t, h.Context(), m)
		require.NoError(t, inner.Unlock(ctx))
		require.NoError(t, h.Unlock(ctx))
		require.ErrorIs(t, h.Unlock(ctx), redlatch.ErrNotHeld)
		require.NoError(t, m.Do(ctx, func(context.Context) error { return nil }))
	}
}

func TestUnlockedHoldIsNeverReported(t *testing.T) {
	t.Parallel()
	g := newGarbage(t)
	useWell(t, g.locks, redistest.Name(t))
	g.collector()
}

// If a chain dropped a hold, it has lost that hold, but not the right to lock.
func TestChainThatDroppedItsHoldMayLockAgain(t *testing.T) {
	t.Parallel()
	t.Run("once it has run out", func(t *testing.T) {
		t.Parallel()
		g := newGarbage(t)
		name := redistest.Name(t)
		chain, m := redlatch.WithOwner(t.Context()), g.locks.Mutex(name)
		stage.Drop(t, chain, m)
		g.log.Collected(t, name)
		g.gets(name)
		again := stage.MustLock(t, chain, m)
		stage.AwaitRenewal(t, again)
		require.NoError(t, again.Unlock(t.Context()))
		isFree(t, g.other.Mutex(name))
	})
	t.Run("though another hold was unlocked twice", func(t *testing.T) {
		t.Parallel()
		g := newGarbage(t)
		name := redistest.Name(t)
		chain, m := redlatch.WithOwner(t.Context()), g.locks.Mutex(name, redlatch.WithLease(time.Hour)) // nobody renews it
		stage.Drop(t, chain, m)
		other := stage.MustLock(t, chain, m)
		require.NoError(t, other.Unlock(t.Context()))
		g.log.Collected(t, name)
		require.ErrorIs(t, other.Unlock(t.Context()), redlatch.ErrNotHeld)
		again := stage.MustLock(t, chain, m)
		require.Equal(t, other.ID(), again.ID())
		require.NoError(t, again.Unlock(t.Context()))
		isFree(t, g.other.Mutex(name))
	})
	t.Run("before that", func(t *testing.T) {
		t.Parallel()
		g := newGarbage(t)
		name := redistest.Name(t)
		chain, m := redlatch.WithOwner(t.Context()), g.locks.Mutex(name, redlatch.WithLease(10*time.Second), redlatch.WithRenewInterval(20*time.Millisecond))
		stage.Drop(t, chain, m)
		g.log.Collected(t, name)
		again := stage.MustLock(t, chain, m)
		stage.AwaitRenewal(t, again)
		require.NoError(t, again.Unlock(t.Context()))
		isFree(t, g.other.Mutex(name))
	})
}

// A hold was dropped, and another hold of the chain releases the lock. The dropped one has ended
// without an Unlock.
func TestLostOfADroppedHoldIsClosedWithTheLock(t *testing.T) {
	log := stage.NewRecords()
	s := stage.OnRealServer(t, log.Option())
	chain := redlatch.WithOwner(context.Background())
	lost := func() <-chan struct{} { return s.Lock(chain).Lost() }()
	inner := s.Lock(chain)
	log.Collected(t, s.Name)
	s.Unlock(inner)
	select {
	case <-lost:
	case <-time.After(stage.Guard):
		require.Fail(t, "Lost of the dropped hold is not closed")
	}
}
