package lock_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/reentrant"
)

// theft is a lock that is about to be lost. It has the holder, the next holder, and an operator.
type theft struct {
	*testing.T
	name          string
	holder, other *redlatch.Client
	admin         *redis.Client
	crash         func() // the server crashes and loses its data; nil in virtual time
}

func (s *theft) do(args ...any) {
	s.Helper()
	require.NoError(s, s.admin.Do(context.Background(), args...).Err())
}

var thefts = map[string]func(s *theft, h *lock.Hold){
	"DEL":      func(s *theft, _ *lock.Hold) { s.do("DEL", s.name) },
	"FLUSHALL": func(s *theft, _ *lock.Hold) { s.do("FLUSHALL") },
	"ForceRelease of anybody": func(s *theft, h *lock.Hold) {
		had, err := s.other.Mutex(s.name).ForceRelease(s.Context(), "")
		require.NoError(s, err)
		require.Equal(s, h.ID(), had)
	},
	"ForceRelease of the holder": func(s *theft, h *lock.Hold) {
		had, err := s.other.Mutex(s.name).ForceRelease(s.Context(), h.ID())
		require.NoError(s, err)
		require.Equal(s, h.ID(), had)
	},
	"a key of another type": func(s *theft, _ *lock.Hold) {
		s.do("DEL", s.name)
		s.do("SET", s.name, "somebody's text", "PX", 60_000)
	},
	"the field of another": func(s *theft, h *lock.Hold) {
		s.do("HDEL", s.name, h.ID())
		s.do("HSET", s.name, "somebody:1", 1)
		s.do("PEXPIRE", s.name, 60_000)
	},
}

func TestEveryLossIsNotifiedAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	for name, steal := range thefts {
		t.Run("virtual/"+name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				at := losing(&theft{
					T: t, name: "a", admin: v.Client(),
					holder: stage.LocksOn(t, v.Client(), redlatch.WithLease(stage.ShortLease), redlatch.WithRenewInterval(stage.ShortRenewal)),
					other:  stage.LocksOn(t, v.Client(), redlatch.WithLease(time.Minute), redlatch.WithPollInterval(stage.ShortRenewal)),
				}, steal)
				require.LessOrEqual(t, at, stage.ShortRenewal)
			})
		})
		t.Run("real/"+name, func(t *testing.T) {
			t.Parallel()
			losing(theftOn(t, redistest.Start(t)), steal)
		})
	}
	t.Run("real/the server dies and forgets", func(t *testing.T) {
		t.Parallel()
		losing(theftOn(t, redistest.Start(t)), func(s *theft, _ *lock.Hold) { s.crash() })
	})
}

func theftOn(t *testing.T, server *redistest.Server) *theft {
	return &theft{
		T: t, name: redistest.Name(t), admin: server.Control(),
		holder: stage.LocksOn(t, server.Client(t), redlatch.WithLease(stage.ShortLease), redlatch.WithRenewInterval(stage.ShortRenewal)),
		other:  stage.LocksOn(t, server.Client(t), redlatch.WithLease(time.Minute), redlatch.WithPollInterval(stage.ShortRenewal)),
		crash: func() {
			server.Kill()
			server.Restart()
		},
	}
}

// losing runs one loss to its end. It returns how long the holder knew nothing of the loss.
func losing(s *theft, steal func(*theft, *lock.Hold)) time.Duration {
	m := s.holder.Mutex(s.name)
	chain := redlatch.WithOwner(s.Context())
	outer := stage.MustLock(s, chain, m)
	inner := stage.MustLock(s, outer.Context(), m)
	contexts := []context.Context{outer.Context(), inner.Context()}
	stage.AwaitRenewal(s, outer)

	start := time.Now()
	steal(s, outer)
	for _, h := range []*lock.Hold{inner, outer} {
		stage.Within(s, h.Lost(), "Lost is closed")
		require.False(s, h.Trusted())
	}
	unknown := time.Since(start)
	for _, ctx := range contexts {
		require.ErrorIs(s, ctx.Err(), context.Canceled)
		s.lost(context.Cause(ctx), outer)
	}

	// Another client has the lock, or the server has the new value.
	var next *lock.Hold
	if kind := s.admin.Type(context.Background(), s.name).Val(); kind == "none" {
		next = stage.MustLock(s, s.Context(), s.other.Mutex(s.name))
		require.Greater(s, next.Fence(), outer.Fence())
	}
	before := s.state()

	_, err := m.Lock(chain)
	s.lost(err, outer)
	_, err = m.TryLock(chain)
	s.lost(err, outer)
	s.lost(m.Do(chain, func(context.Context) error { s.Error("runs without the lock"); return nil }), outer)
	s.lost(inner.Unlock(s.Context()), outer)
	_, err = m.Lock(chain) // one of two lost holds is still open
	s.lost(err, outer)
	s.lost(outer.Unlock(s.Context()), outer)
	s.lost(outer.Unlock(s.Context()), outer)
	require.Equal(s, before, s.state(), "somebody else's key was changed")

	// The chain knows of the loss now, and may lock again.
	if next != nil {
		stage.StillHeld(s, next)
		require.NoError(s, next.Unlock(s.Context()))
	} else {
		s.do("DEL", s.name)
	}
	again := stage.MustLock(s, chain, m)
	require.NotEqual(s, outer.ID(), again.ID())
	require.Greater(s, again.Fence(), outer.Fence())
	if next != nil {
		require.Greater(s, again.Fence(), next.Fence())
	}
	stage.AwaitRenewal(s, again)
	require.NoError(s, again.Unlock(s.Context()))
	return unknown
}

// lost asserts that err is the loss of h, with all its facts.
func (s *theft) lost(err error, h *lock.Hold) {
	s.Helper()
	require.ErrorIs(s, err, redlatch.ErrLost)
	var lost *redlatch.LostError
	require.ErrorAs(s, err, &lost)
	require.Equal(s, s.name, lost.Name)
	require.Equal(s, h.ID(), lost.ID)
	require.Equal(s, stage.ShortLease, lost.Lease)
	require.Positive(s, lost.Age)
	require.NotEmpty(s, lost.Reason)
}

// state is the data under the name: all fields of a hash, or else the text.
func (s *theft) state() string {
	ctx := context.Background()
	if kind := s.admin.Type(ctx, s.name).Val(); kind != "hash" {
		return kind + " " + s.admin.Get(ctx, s.name).Val()
	}
	return fmt.Sprint(s.admin.HGetAll(ctx, s.name).Val())
}

// Between the loss and the next renewal, the holder knows nothing of the loss. Unlock and re-entry
// find it by themselves.
func TestLossIsFoundBeforeTheRenewalFindsIt(t *testing.T) {
	t.Parallel()
	for name, find := range map[string]func(s *theft, m *reentrant.Mutex, chain context.Context, h *lock.Hold){
		"by Unlock": func(s *theft, _ *reentrant.Mutex, _ context.Context, h *lock.Hold) {
			s.lost(h.Unlock(s.Context()), h)
		},
		"by re-entry": func(s *theft, m *reentrant.Mutex, chain context.Context, h *lock.Hold) {
			_, err := m.Lock(chain)
			s.lost(err, h)
			require.True(s, stage.IsClosed(h.Lost()))
			s.lost(context.Cause(h.Context()), h)
			s.lost(h.Unlock(s.Context()), h)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				s := &theft{
					T: t, name: "a", admin: v.Client(),
					holder: stage.LocksOn(t, v.Client(), redlatch.WithLease(stage.ShortLease)),
					other:  stage.LocksOn(t, v.Client(), redlatch.WithLease(time.Minute)),
				}
				chain := redlatch.WithOwner(t.Context())
				m := s.holder.Mutex("a")
				h := stage.MustLock(t, chain, m)
				time.Sleep(time.Millisecond)
				s.do("DEL", "a")
				next := stage.MustLock(t, t.Context(), s.other.Mutex("a"))
				before := s.state()
				find(s, m, chain, h)
				require.Equal(t, before, s.state())
				require.NoError(t, next.Unlock(t.Context()))
				again := stage.MustLock(t, chain, m)
				require.Greater(t, again.Fence(), next.Fence())
				require.NoError(t, again.Unlock(t.Context()))
			})
		})
	}
}

func TestForceReleaseSparesWhomItDoesNotExpect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		locks, admin := stage.LocksOn(t, v.Client()), stage.LocksOn(t, v.Client())
		gone := stage.MustLock(t, t.Context(), locks.Mutex("a"))
		require.NoError(t, gone.Unlock(t.Context()))
		h := stage.MustLock(t, t.Context(), locks.Mutex("a"))

		had, err := admin.Mutex("a").ForceRelease(t.Context(), gone.ID())
		var facts *redlatch.NotAcquiredError
		require.ErrorAs(t, err, &facts)
		require.Equal(t, h.ID(), facts.Holder)
		require.Equal(t, h.ID(), had)
		had, err = admin.Mutex("a").ForceRelease(t.Context(), "nobody's")
		require.ErrorAs(t, err, &facts)
		require.Equal(t, h.ID(), had)
		time.Sleep(time.Hour)
		stage.StillHeld(t, h)
		require.NoError(t, h.Unlock(t.Context()))

		had, err = admin.Mutex("a").ForceRelease(t.Context(), "")
		require.NoError(t, err)
		require.Empty(t, had)
	})
}

func init() { stage.Workers["holder"] = holderWorker }

// holderWorker holds a lock twice, and reports that. When it reads a line on stdin, it immediately
// does everything that a holder would do that knows nothing of the loss.
func holderWorker() error {
	opt, err := redis.ParseURL(os.Getenv("REDLATCH_TEST_URL"))
	if err != nil {
		return err
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	locks, err := redlatch.New(rdb, redlatch.WithLease(4*time.Second), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	chain := redlatch.WithOwner(context.Background())
	m := locks.Mutex(os.Getenv("REDLATCH_TEST_LOCK"))
	outer, err := m.Lock(chain)
	if err != nil {
		return err
	}
	inner, err := m.Lock(chain)
	if err != nil {
		return err
	}
	ctx := outer.Context()
	say, hear := json.NewEncoder(os.Stdout), bufio.NewReader(os.Stdin)
	if err := say.Encode(stage.Report{Acquisition: outer.ID(), Fence: outer.Fence(), Trusted: outer.Trusted()}); err != nil {
		return err
	}
	if _, err := hear.ReadString('\n'); err != nil {
		return err
	}
	f := stage.Report{Trusted: outer.Trusted()} // first, because no call may be necessary for it
	_, err = m.Lock(chain)
	f.Reentry, f.ReentryIsLost = fmt.Sprint(err), errors.Is(err, redlatch.ErrLost)
	_, err = m.TryLock(chain)
	f.TryIsLost = errors.Is(err, redlatch.ErrLost)
	<-outer.Lost()
	f.Cause = fmt.Sprint(context.Cause(ctx))
	f.InnerIsLost = errors.Is(inner.Unlock(chain), redlatch.ErrLost)
	f.OuterIsLost = errors.Is(outer.Unlock(chain), redlatch.ErrLost)
	_, err = m.TryLock(chain)
	f.AgainIsDenied = errors.Is(err, redlatch.ErrNotAcquired)
	if err := say.Encode(f); err != nil {
		return err
	}
	if _, err := hear.ReadString('\n'); err != nil {
		return err
	}
	again, err := m.Lock(chain)
	if err != nil {
		return err
	}
	if err := say.Encode(stage.Report{AgainHasFence: again.Fence()}); err != nil {
		return err
	}
	return locks.Close(context.Background())
}

// A process is stopped for longer than its lease, and goes on after another has used the lock.
// Nothing that it does with its old hold has an effect.
func TestHolderStoppedBeyondItsLeaseTouchesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	name := redistest.Name(t)
	w := stage.StartWorker(t, "holder", "REDLATCH_TEST_URL="+s.URL(), "REDLATCH_TEST_LOCK="+name)
	first := w.Hear()
	require.True(t, first.Trusted)

	w.Signal(syscall.SIGSTOP)
	locks := stage.LocksOn(t, s.Client(t))
	next := stage.MustLock(t, t.Context(), locks.Mutex(name)) // when the lease has ended
	require.Greater(t, next.Fence(), first.Fence)
	w.Say() // it acts at the moment at which it continues
	w.Signal(syscall.SIGCONT)

	f := w.Hear()
	require.False(t, f.Trusted, "trusted after the lease, before anything was asked")
	require.True(t, f.ReentryIsLost, f.Reentry)
	require.True(t, f.TryIsLost)
	require.True(t, f.InnerIsLost)
	require.True(t, f.OuterIsLost)
	require.True(t, f.AgainIsDenied, "lost and settled, it is somebody else's")
	require.Contains(t, f.Cause, "lost")
	require.Contains(t, f.Cause, first.Acquisition)
	stage.StillHeld(t, next)
	info, err := locks.Mutex(name).Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, next.ID(), info.Holder)
	require.Equal(t, 1, info.Holds)

	w.Say()
	require.NoError(t, next.Unlock(t.Context()))
	require.Greater(t, w.Hear().AgainHasFence, next.Fence())
	w.Ended()
}

// StartWorker starts this test binary again. The new process runs one of Workers.

// Say sends the worker a line.

// Hear waits for the next report of the worker.

// Signal sends the process a signal.

// Ended waits for the end of the process.

// A lock is lost while one of its commands hangs. Unlock reports the loss immediately, and not that
// the command hangs.
func TestALossIsNotifiedThoughACommandHangs(t *testing.T) {
	commands := map[string]func(s *stage.Scene, outer, inner *lock.Hold, chain context.Context){
		"re-entry": func(s *stage.Scene, _, _ *lock.Hold, chain context.Context) {
			ctx, cancel := context.WithTimeout(chain, 10*stage.ShortLease)
			defer cancel()
			_, err := s.Mutex.Lock(ctx)
			require.ErrorIs(s.T, err, redlatch.ErrLost)
		},
		"Unlock of an inner hold": func(s *stage.Scene, _, inner *lock.Hold, _ context.Context) {
			require.Error(s.T, inner.Unlock(context.Background())) // it gives up at that very instant
		},
	}
	for name, command := range commands {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t, redlatch.WithLease(stage.ShortLease), redlatch.WithRenewInterval(stage.ShortRenewal))
				chain := redlatch.WithOwner(context.Background())
				outer := s.Lock(chain)
				inner := s.Lock(chain)
				lost := outer.Lost()
				s.Proxy.BlackHole(redistest.AllTraffic)
				hangs := make(chan struct{})
				go func() { defer close(hangs); command(s, outer, inner, chain) }()
				<-lost
				at := time.Now()
				require.ErrorIs(t, outer.Unlock(context.Background()), redlatch.ErrLost)
				<-hangs
				require.Zero(t, time.Since(at))
				s.Proxy.Heal()
			})
		})
	}
}

// A hold that was unlocked is not held, whatever happened to the lock after that.
func TestAHoldThatWasUnlockedIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		outer := s.Lock(context.Background())
		inner := s.Lock(outer.Context())
		s.Unlock(inner)
		require.NoError(t, s.Direct.Del(context.Background(), s.Name).Err())
		<-outer.Lost()
		require.ErrorIs(t, inner.Unlock(context.Background()), redlatch.ErrNotHeld)
		for range 2 {
			require.ErrorIs(t, outer.Unlock(context.Background()), redlatch.ErrLost)
		}
	})
}

// The reply of one renewal is lost, with leases down to the shortest possible one.
func TestALostReplyToARenewalLosesNoLease(t *testing.T) {
	for _, lease := range []time.Duration{100 * time.Millisecond, 150 * time.Millisecond, time.Second, 30 * time.Second} {
		t.Run(lease.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t, redlatch.WithLease(lease))
				h := s.Lock(context.Background())
				for range 20 {
					lost := s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/renew"), Times: 1, Action: redistest.LoseReply()})
					time.Sleep(5 * lease)
					require.Equal(t, 1, lost.Bites())
					require.True(t, h.Trusted())
				}
				s.Unlock(h)
			})
		})
	}
}
