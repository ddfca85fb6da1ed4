package reentrant_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/construct"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/reentrant"
)

// These are the tests of Redisson's own suites, and of the gaps in them, except those in the
// conformance suite. docs/redisson-tests.md maps each row.

const (
	tooLong = time.Minute      // only a failure takes as long
	farOff  = 20 * time.Minute // longer than any test
)

// patientClient makes a client that closes when the test ends, with go-redis clients of its own.
// Its poll and its lease are so long that only messages wake up waiters.
func patientClient(t testing.TB, rdb redis.UniversalClient, options ...redlatch.Option) *redlatch.Client {
	t.Helper()
	quiet := []redlatch.Option{
		redlatch.WithLease(farOff), redlatch.WithPollInterval(farOff),
		redlatch.WithLogger(slog.New(slog.DiscardHandler)),
	}
	c, err := redlatch.New(rdb, append(quiet, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), tooLong)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

func lockNow(t testing.TB, mu *reentrant.Mutex) *lock.Hold {
	t.Helper()
	h, err := mu.TryLock(context.Background())
	require.NoError(t, err)
	return h
}

func unlockNow(t testing.TB, h *lock.Hold) {
	t.Helper()
	require.NoError(t, h.Unlock(context.Background()))
}

// laterLock is a Lock in a goroutine of its own.
type laterLock struct {
	done chan struct{}
	hold *lock.Hold
	err  error
}

func lockLater(ctx context.Context, mu *reentrant.Mutex) *laterLock {
	a := &laterLock{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.hold, a.err = mu.Lock(ctx)
	}()
	return a
}

func (a *laterLock) got(t testing.TB) *lock.Hold {
	t.Helper()
	happens(t, a.done, "Lock returns")
	require.NoError(t, a.err)
	return a.hold
}

func happens(t testing.TB, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(tooLong):
		require.FailNow(t, "did not happen: "+what)
	}
}

func comesTrue(t testing.TB, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, tooLong, 5*time.Millisecond, what)
}

// listeners is the number of connections that listen for the release of a lock.
func listeners(t testing.TB, rdb *redis.Client, name string) int64 {
	t.Helper()
	channel := "redisson_lock__channel:{" + name + "}"
	n, err := rdb.PubSubNumSub(context.Background(), channel).Result()
	require.NoError(t, err)
	return n[channel]
}

// scriptTraffic counts the scripts of a go-redis client, and can lose replies.
type scriptTraffic struct {
	sent atomic.Int64
	lose atomic.Int64 // number of replies still to lose
}

func (s *scriptTraffic) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *scriptTraffic) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(s, next)
}

func (s *scriptTraffic) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if !strings.HasPrefix(cmd.Name(), "eval") || redis.HasErrorPrefix(err, "NOSCRIPT") {
			return err
		}
		s.sent.Add(1)
		if s.lose.Add(-1) >= 0 {
			cmd.SetErr(io.EOF) // the script has run
			return io.EOF
		}
		return err
	}
}

// RedissonLockTest.testRedisFailed: the error names Redis as the reason, in time, and nothing
// hangs.
func TestMutex_WithoutRedisSaysSo(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := patientClient(t, s.Client(t))
	mu := c.Mutex(redistest.Name(t))
	s.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	for _, acquire := range []func(context.Context) (*lock.Hold, error){mu.Lock, mu.TryLock} {
		_, err := acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, redlatch.ErrLost)
		require.NotErrorIs(t, err, redlatch.ErrRefused)
	}
	_, err := mu.Inspect(ctx)
	require.Error(t, err)
}

// RedissonLockTest.testRemainTimeToLive and testRemainTimeToLive2.
func TestMutex_RemainingFollowsTheLease(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	mu := patientClient(t, s.Client(t), redlatch.WithLease(time.Hour)).Mutex(redistest.Name(t))
	ctx := redlatch.WithOwner(context.Background())
	remaining := func() time.Duration {
		info, err := mu.Inspect(ctx)
		require.NoError(t, err)
		return info.Remaining
	}
	require.Zero(t, remaining(), "nobody has it")
	var holds []*lock.Hold
	for range 3 {
		h, err := mu.Lock(ctx)
		require.NoError(t, err)
		holds = append(holds, h)
	}
	for _, h := range holds {
		require.Greater(t, remaining(), 59*time.Minute, "an inner release leaves the lease")
		require.LessOrEqual(t, remaining(), time.Hour)
		unlockNow(t, h)
	}
	require.Zero(t, remaining(), "nobody has it")
}

// RedissonLockTest.testForceUnlock.
func TestMutex_ForceReleaseFreesNotifiesAndWakes(t *testing.T) {
	t.Parallel()
	s, name, ctx := redistest.Shared(t), redistest.Name(t), context.Background()
	holder := patientClient(t, s.Client(t), redlatch.WithLease(3*time.Second)).Mutex(name)
	other := patientClient(t, s.Client(t)).Mutex(name)
	h := lockNow(t, holder)
	waiter := lockLater(ctx, other)
	comesTrue(t, func() bool { return listeners(t, s.Client(t), name) > 0 }, "the waiter listens")

	_, err := other.ForceRelease(ctx, "somebody else:1")
	var facts *redlatch.NotAcquiredError
	require.ErrorAs(t, err, &facts)
	require.Equal(t, h.ID(), facts.Holder)
	require.True(t, h.Trusted())

	victim, err := other.ForceRelease(ctx, h.ID())
	require.NoError(t, err)
	require.Equal(t, h.ID(), victim)
	next := waiter.got(t)
	happens(t, h.Lost(), "the victim is notified")
	require.ErrorIs(t, h.Unlock(ctx), redlatch.ErrLost)
	unlockNow(t, next)
	nobody, err := other.ForceRelease(ctx, "")
	require.NoError(t, err)
	require.Empty(t, nobody)
}

// RedissonLockTest.testExpire.
func TestMutex_WithoutRenewalEndsWithItsLease(t *testing.T) {
	t.Parallel()
	s, name, ctx := redistest.Shared(t), redistest.Name(t), context.Background()
	holder := patientClient(t, s.Client(t)).Mutex(name, redlatch.WithLease(500*time.Millisecond), redlatch.WithoutRenewal())
	other := patientClient(t, s.Client(t)).Mutex(name)
	h := lockNow(t, holder)
	next := lockLater(ctx, other).got(t)
	happens(t, h.Lost(), "the holder is notified")
	require.Greater(t, next.Fence(), h.Fence())
	require.ErrorIs(t, h.Unlock(ctx), redlatch.ErrLost)
	unlockNow(t, next)
}

// RedissonLockTest.testSubscriptionsPerConnection, testSinglePubSub: a client has one connection
// that listens, for any number of names and waiters. No subscription is left at the end.
func TestMutex_OneConnectionListensForAllNames(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	const clients, names, each, rounds = 2, 5, 4, 25
	var all sync.WaitGroup
	for range clients {
		c := patientClient(t, s.Client(t))
		for n := range names * each {
			mu := c.Mutex(fmt.Sprintf("name %d", n%names))
			all.Go(func() {
				for range rounds {
					assert.NoError(t, mu.Do(context.Background(), func(context.Context) error { return nil }))
				}
			})
		}
	}
	rounded := make(chan struct{})
	go func() { all.Wait(); close(rounded) }()
	for running := true; running; {
		select {
		case <-rounded:
			running = false
		case <-time.After(tooLong):
			require.FailNow(t, "did not happen: all rounds end")
		default:
			require.LessOrEqual(t, listening(t, admin), clients)
		}
	}
	nothingListens(t, admin)
}

// listening is the number of connections with subscriptions.
func listening(t testing.TB, rdb *redis.Client) int {
	t.Helper()
	list, err := rdb.Do(context.Background(), "CLIENT", "LIST", "TYPE", "PUBSUB").Text()
	require.NoError(t, err)
	return strings.Count(list, "\n")
}

func nothingListens(t testing.TB, rdb *redis.Client) {
	t.Helper()
	comesTrue(t, func() bool {
		channels, err := rdb.PubSubChannels(context.Background(), "*").Result()
		require.NoError(t, err)
		return len(channels) == 0
	}, "no channel is subscribed")
}

// Gap G-27: very many waiters of one client, each for a name of its own, all wait. When they have
// given up, no subscription is left.
func TestMutex_ManyNamesAreWaitedForOverOneConnection(t *testing.T) {
	t.Parallel()
	const names = 500
	s := redistest.Start(t)
	admin := s.Client(t)
	holder, other := patientClient(t, s.Client(t)), patientClient(t, s.Client(t))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var holds []*lock.Hold
	var waiters []*laterLock
	for n := range names {
		name := fmt.Sprintf("name %d", n)
		holds = append(holds, lockNow(t, holder.Mutex(name)))
		waiters = append(waiters, lockLater(ctx, other.Mutex(name)))
	}
	comesTrue(t, func() bool {
		channels, err := admin.PubSubChannels(ctx, "*name *").Result() // and perhaps one of the client, for echoes
		require.NoError(t, err)
		return len(channels) == names
	}, "every waiter listens")
	require.Equal(t, 1, listening(t, admin))
	for n := range names / 2 {
		unlockNow(t, holds[n])
		unlockNow(t, waiters[n].got(t))
	}
	cancel()
	for _, w := range waiters[names/2:] {
		happens(t, w.done, "a cancelled Lock returns")
		require.ErrorIs(t, w.err, context.Canceled)
	}
	nothingListens(t, admin)
}

// RedissonLockTest.testConcurrency_MultiInstance.
func TestMutex_ManyClientsEachGetItOnce(t *testing.T) {
	t.Parallel()
	const clients = 60
	s, name := redistest.Shared(t), redistest.Name(t)
	held := lockNow(t, patientClient(t, s.Client(t)).Mutex(name))
	var waiters []*laterLock
	var inside atomic.Int32
	for range clients {
		waiters = append(waiters, lockLater(context.Background(), patientClient(t, s.Client(t)).Mutex(name)))
	}
	unlockNow(t, held)
	var all sync.WaitGroup
	for _, w := range waiters {
		all.Go(func() {
			h := w.got(t)
			assert.EqualValues(t, 1, inside.Add(1), "alone inside")
			inside.Add(-1)
			assert.NoError(t, h.Unlock(context.Background()))
		})
	}
	all.Wait()
}

// Gap G-28: many waiters of several clients cost a limited number of commands for each hand-over,
// and all of them get the lock.
func TestMutex_HandOverCostsBoundedCommands(t *testing.T) {
	t.Parallel()
	const clients, each = 10, 20
	s, name := redistest.Shared(t), redistest.Name(t)
	first := patientClient(t, s.Client(t)).Mutex(name)
	held := lockNow(t, first)
	var count scriptTraffic
	var waiters []*laterLock
	for range clients {
		rdb := s.Client(t)
		rdb.AddHook(&count)
		mu := patientClient(t, rdb).Mutex(name)
		for range each {
			waiters = append(waiters, lockLater(context.Background(), mu))
		}
	}
	comesTrue(t, func() bool { return listeners(t, s.Client(t), name) == clients }, "every client listens")
	unlockNow(t, held)
	var all sync.WaitGroup
	for _, w := range waiters {
		all.Go(func() { unlockNow(t, w.got(t)) })
	}
	all.Wait()
	// A release wakes up the one goroutine of each client that asks. Local handoff serves the other
	// waiters of that client. The limit is twice that, for the first attempts and the clock.
	require.Less(t, count.sent.Load(), int64(2*(clients+1)*clients*each/4))
}

// RedissonLockExpirationRenewalTest.testLockAfterTimeout.
func TestMutex_LostWithARestartAndLaterOnesAreRenewed(t *testing.T) {
	t.Parallel()
	s, ctx := redistest.Start(t), context.Background()
	mu := patientClient(t, s.Client(t), redlatch.WithLease(4*time.Second)).Mutex(redistest.Name(t))
	h := lockNow(t, mu)
	s.Restart()
	happens(t, h.Lost(), "the holder is notified")
	require.ErrorIs(t, h.Unlock(ctx), redlatch.ErrLost)
	next, err := mu.Lock(ctx)
	require.NoError(t, err)
	require.Greater(t, next.Fence(), h.Fence(), "though the server has forgotten the last")
	isRenewed(t, next)
	unlockNow(t, next)
}

// RedissonLockExpirationRenewalTest.testLockReentrantRenew.
func TestMutex_RenewalGoesOnAfterAReentrantCycle(t *testing.T) {
	t.Parallel()
	c := patientClient(t, redistest.Shared(t).Client(t), redlatch.WithLease(4*time.Second))
	mu, other := c.Mutex(redistest.Name(t)), c.Mutex(redistest.Name(t))
	ctx := redlatch.WithOwner(context.Background())
	var holds []*lock.Hold
	for range 3 {
		h, err := mu.Lock(ctx)
		require.NoError(t, err)
		holds = append(holds, h)
	}
	for _, h := range holds {
		isRenewed(t, h)
		unlockNow(t, h)
	}
	next := lockNow(t, other)
	for range 3 {
		isRenewed(t, next)
	}
	unlockNow(t, next)
}

func isRenewed(t testing.TB, h *lock.Hold) {
	t.Helper()
	was := h.TrustedUntil()
	comesTrue(t, func() bool { return h.TrustedUntil().After(was) }, "trust is extended")
	require.True(t, h.Trusted())
}

// RedissonLockHeavyTest: very many locks with work under them, some of them nested.
func TestMutex_Soak(t *testing.T) {
	t.Parallel()
	rounds := redistest.Rounds(30, 300)
	const clients, goroutines, names = 3, 6, 4
	s, name := redistest.Shared(t), redistest.Name(t)
	var inside [names]atomic.Int32
	var all sync.WaitGroup
	for range clients {
		c := patientClient(t, s.Client(t))
		for g := range goroutines {
			all.Go(func() {
				for i := range rounds {
					n := (g + i) % names
					mu := c.Mutex(fmt.Sprint(name, n))
					err := mu.Do(context.Background(), func(ctx context.Context) error {
						assert.EqualValues(t, 1, inside[n].Add(1), "alone inside")
						defer inside[n].Add(-1)
						return mu.Do(ctx, func(ctx context.Context) error { return ctx.Err() })
					})
					if !assert.NoError(t, err) {
						return
					}
				}
			})
		}
	}
	all.Wait()
}

// renewal/ReadLockEntryTest: the client keeps nothing for a name that nobody uses any more.
func TestMutex_NothingIsKeptForANameOutOfUse(t *testing.T) {
	t.Parallel()
	s, name, ctx := redistest.Shared(t), redistest.Name(t), context.Background()
	registry := func() (construct.Mutexes, *mutex.Registry) {
		rdb := s.Client(t)
		ses := session.New(session.Config{Redis: rdb, Deployment: node.Deployment{PubSub: node.SubscriberOf(rdb)}, Log: slog.New(slog.DiscardHandler)})
		t.Cleanup(func() { ses.BeginClose(); _ = ses.FinishClose(ctx) })
		all := mutex.NewRegistry(ses)
		return construct.Reentrant(all), all
	}
	set := new(settings.Default)
	mutexes, f := registry()
	other, _ := registry()
	mu, elsewhere := mutexes.Mutex(name, set).(*reentrant.Mutex), other.Mutex(name, set).(*reentrant.Mutex)
	require.Zero(t, f.Len())
	outer := lockNow(t, mu)
	inner, err := mu.Lock(outer.Context())
	require.NoError(t, err)
	require.Equal(t, 1, f.Len())
	unlockNow(t, outer)
	unlockNow(t, inner)
	require.Zero(t, f.Len(), "after release")

	h := lockNow(t, elsewhere)
	_, err = mu.TryLock(ctx)
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	require.Zero(t, f.Len(), "after a refusal")
	bounded, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = mu.Lock(bounded)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, f.Len(), "after a wait in vain")
	unlockNow(t, h)
}

// Gap G-2: a reply that is lost once or several times has no second effect.
func TestMutex_LostRepliesHaveOneEffect(t *testing.T) {
	t.Parallel()
	for _, lost := range []int64{1, 3} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			t.Parallel()
			s, name := redistest.Shared(t), redistest.Name(t)
			rdb := s.Client(t)
			var net scriptTraffic
			rdb.AddHook(&net)
			c := patientClient(t, rdb)
			mu, other := c.Mutex(name), patientClient(t, s.Client(t)).Mutex(name)
			ctx := redlatch.WithOwner(context.Background())
			holds := func() int {
				info, err := other.Inspect(ctx)
				require.NoError(t, err)
				return info.Holds
			}
			unlockNow(t, lockNow(t, mu)) // the client knows the clock now

			net.lose.Store(lost)
			outer, err := mu.Lock(ctx)
			require.NoError(t, err)
			require.Equal(t, 1, holds())
			net.lose.Store(lost)
			inner, err := mu.Lock(ctx)
			require.NoError(t, err)
			require.Equal(t, 2, holds())
			net.lose.Store(lost)
			unlockNow(t, inner)
			require.Equal(t, 1, holds())
			net.lose.Store(lost)
			waiter := lockLater(context.Background(), mu) // it gets the lock, by a hand-over or not
			unlockNow(t, outer)
			h := waiter.got(t)
			require.Greater(t, h.Fence(), outer.Fence())
			net.lose.Store(lost)
			unlockNow(t, h)
			require.Zero(t, holds())
			next := lockNow(t, other)
			require.ErrorIs(t, h.Unlock(ctx), redlatch.ErrNotHeld)
			require.Equal(t, 1, holds(), "the next holder is not touched")
			unlockNow(t, next)
		})
	}
}

// Gap G-3: if a paused server answers an acquire too late, no lock is left.
func TestMutex_NoOrphanWhenTheServerPauses(t *testing.T) {
	t.Parallel()
	s, name := redistest.Start(t), redistest.Name(t)
	rdb := s.Client(t)
	mu := patientClient(t, s.Client(t)).Mutex(name)
	unlockNow(t, lockNow(t, mu))
	s.Pause()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := mu.Lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
	s.Resume()
	comesTrue(t, func() bool {
		info, err := mu.Inspect(context.Background())
		return err == nil && !info.Held()
	}, "what was granted too late is given back, long before its lease ends")
	unlockNow(t, lockNow(t, patientClient(t, rdb).Mutex(name)))
}

// Gap G-8: the log reports a forgotten hold, with the place where it was acquired. Others wait no
// longer than its lease.
func TestMutex_ForgottenHoldIsReportedAndEnds(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), redistest.Name(t)
	var log stage.LogLines
	forgetful := patientClient(t, s.Client(t), redlatch.WithLease(2*time.Second), redlatch.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))).Mutex(name)
	func() { lockNow(t, forgetful) }()
	comesTrue(t, func() bool { runtime.GC(); return strings.Contains(log.String(), "without Unlock") }, "the leak is reported")
	require.Contains(t, log.String(), "checklist_test.go")
	require.Contains(t, log.String(), name)
	unlockNow(t, lockLater(context.Background(), patientClient(t, s.Client(t)).Mutex(name)).got(t))
}

// String returns everything that was logged.

// Gap G-9: holds of one acquisition share its lease, whatever their own mutex says. No hold is
// trusted for longer than Redis keeps the lock.
func TestMutex_HoldsOfOneAcquisitionShareItsLease(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), redistest.Name(t)
	c := patientClient(t, s.Client(t))
	short := c.Mutex(name, redlatch.WithLease(2*time.Second), redlatch.WithoutRenewal())
	long := c.Mutex(name)
	outer := lockNow(t, short)
	inner, err := long.Lock(outer.Context())
	require.NoError(t, err)
	info, err := long.Inspect(context.Background())
	require.NoError(t, err)
	require.LessOrEqual(t, time.Until(inner.TrustedUntil()), info.Remaining)
	happens(t, outer.Lost(), "the outer hold is notified")
	happens(t, inner.Lost(), "the inner hold is notified")
	require.ErrorIs(t, inner.Unlock(context.Background()), redlatch.ErrLost)
	require.ErrorIs(t, outer.Unlock(context.Background()), redlatch.ErrLost)
}

// Gap G-9, the reverse: a shorter inner lease does not shorten the outer one.
func TestMutex_InnerHoldDoesNotShortenTheLease(t *testing.T) {
	t.Parallel()
	c, name := patientClient(t, redistest.Shared(t).Client(t)), redistest.Name(t)
	outer := lockNow(t, c.Mutex(name))
	inner, err := c.Mutex(name, redlatch.WithLease(time.Second), redlatch.WithoutRenewal()).Lock(outer.Context())
	require.NoError(t, err)
	unlockNow(t, inner)
	info, err := c.Mutex(name).Inspect(context.Background())
	require.NoError(t, err)
	require.Greater(t, info.Remaining, farOff/2)
	unlockNow(t, outer)
}

// Gap G-20: the digits of a fence are exact up to the largest number that is exact in Lua. Redis
// refuses a grant with a larger fence, because it would be wrong.
func TestMutex_FencesKeepTheirDigits(t *testing.T) {
	t.Parallel()
	s, name, ctx := redistest.Shared(t), redistest.Name(t), context.Background()
	rdb, mu := s.Client(t), patientClient(t, s.Client(t)).Mutex(name)
	key := "redisson_lock_token:{" + name + "}"
	const last = 1<<53 - 1
	require.NoError(t, rdb.Set(ctx, key, int64(last-2), 0).Err())
	for want := int64(last - 1); want <= last; want++ {
		h := lockNow(t, mu)
		require.Equal(t, want, h.Fence())
		info, err := mu.Inspect(ctx)
		require.NoError(t, err)
		require.Equal(t, want, info.Fence)
		require.Equal(t, fmt.Sprint(want), rdb.Get(ctx, key).Val())
		unlockNow(t, h)
	}
	_, err := mu.TryLock(ctx)
	require.ErrorIs(t, err, redlatch.ErrRefused)
	require.Zero(t, rdb.Exists(ctx, name).Val(), "nothing is held")
}

// Gap G-26: held locks do not cost a goroutine each, and their renewals go together. The test is
// not parallel, because it counts goroutines.
func TestMutex_HeldLocksCostNoGoroutineEach(t *testing.T) {
	const locks = 500
	s := redistest.Start(t)
	rdb := s.Client(t)
	var count scriptTraffic
	rdb.AddHook(&count)
	c := patientClient(t, rdb, redlatch.WithLease(3*time.Second))
	unlockNow(t, lockNow(t, c.Mutex(redistest.Name(t))))
	before := runtime.NumGoroutine()
	var holds []*lock.Hold
	for range locks {
		holds = append(holds, lockNow(t, c.Mutex(redistest.Name(t))))
	}
	require.Less(t, runtime.NumGoroutine(), before+locks/10)
	sent := count.sent.Load()
	extended := time.Now().Add(3 * time.Second) // no trust lasts that long without a renewal
	for _, h := range holds {
		comesTrue(t, func() bool { return h.TrustedUntil().After(extended) }, "trust is extended")
	}
	require.Less(t, count.sent.Load()-sent, int64(locks/2), "scripts to renew all")
	for _, h := range holds {
		unlockNow(t, h)
	}
}
