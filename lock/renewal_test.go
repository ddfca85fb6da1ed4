package lock_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

// MustLock waits for a mutex, up to Guard.

// IsClosed reports whether c is closed.

// lostAt waits for the loss. It returns when the holder was notified, and why.
func lostAt(t testing.TB, h *lock.Hold) (time.Time, *redlatch.LostError) {
	t.Helper()
	ctx := h.Context()
	stage.Within(t, h.Lost(), "Lost is closed")
	now := time.Now()
	require.False(t, h.Trusted(), "trusted though lost")
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	var lost *redlatch.LostError
	require.ErrorAs(t, context.Cause(ctx), &lost)
	return now, lost
}

// NewRecords makes a log with room for all records of a test.

// Option makes a client write this log.

func TestLockHeldForTenHoursStaysHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		locks := stage.LocksOn(t, v.Client())
		h := stage.MustLock(t, t.Context(), locks.Mutex("long job"))
		for range 10 * 60 {
			time.Sleep(time.Minute)
			stage.StillHeld(t, h)
			require.Positive(t, v.Server.TTL("long job"))
		}
		require.Equal(t, "1", v.Server.HGet("long job", h.ID()), "it is the same acquisition all the time")
		require.NoError(t, h.Unlock(t.Context()))
		require.False(t, v.Server.Exists("long job"))
	})
}

// An explicit lease is the time between signs of life, and not the longest time that a lock may be
// held. Other libraries turn off the renewal for an explicit lease.
func TestExplicitLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		onClient := stage.LocksOn(t, v.Client(), redlatch.WithLease(3*time.Second))
		onLock := stage.LocksOn(t, v.Client())
		held := []*lock.Hold{
			stage.MustLock(t, t.Context(), onClient.Mutex("a")),
			stage.MustLock(t, t.Context(), onLock.Mutex("b", redlatch.WithLease(5*time.Second))),
		}
		time.Sleep(5 * time.Minute)
		for _, h := range held {
			stage.StillHeld(t, h)
			require.NoError(t, h.Unlock(t.Context()))
		}
	})
}

func TestWithoutRenewalHoldEndsWithItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		locks := stage.LocksOn(t, v.Client(), redlatch.WithLease(10*time.Second), redlatch.WithoutRenewal())
		start := time.Now()
		h := stage.MustLock(t, t.Context(), locks.Mutex("a"))
		trusted := h.TrustedUntil()
		time.Sleep(8 * time.Second)
		stage.StillHeld(t, h)
		require.Equal(t, 2*time.Second, v.Server.TTL("a"), "it was looked at, and not extended")

		at, reason := lostAt(t, h)
		require.Contains(t, reason.Reason, "was not to be renewed")
		require.Equal(t, trusted, at)
		require.Equal(t, 9*time.Second, at.Sub(start))
		require.Equal(t, time.Second, v.Server.TTL("a"))
		require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrLost)
	})
}

func TestWithoutRenewalLossIsStillNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		locks := stage.LocksOn(t, v.Client(), redlatch.WithRenewInterval(time.Second), redlatch.WithoutRenewal())
		h := stage.MustLock(t, t.Context(), locks.Mutex("a"))
		start := time.Now()
		v.Server.Del("a")
		at, _ := lostAt(t, h)
		require.LessOrEqual(t, at.Sub(start), time.Second)
	})
}

func TestMaxHoldEndsAHoldWithinOneMoreLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease, most = 10 * time.Second, time.Minute
		v := redistest.Bubble(t)
		locks := stage.LocksOn(t, v.Client(), redlatch.WithLease(lease), redlatch.WithMaxHold(most))
		start := time.Now()
		h := stage.MustLock(t, t.Context(), locks.Mutex("a"))
		time.Sleep(most)
		synctest.Wait()
		stage.StillHeld(t, h)
		trusted, left := h.TrustedUntil(), v.Server.TTL("a")

		at, lost := lostAt(t, h)
		require.Equal(t, trusted, at, "nothing was extended after the maximum")
		require.LessOrEqual(t, at.Sub(start), most+lease)
		require.Equal(t, left-at.Sub(start.Add(most)), v.Server.TTL("a"))
		require.Contains(t, lost.Error(), "maximum hold time")

		require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrLost)
		time.Sleep(lease)
		again := stage.MustLock(t, t.Context(), locks.Mutex("a"))
		require.NoError(t, again.Unlock(t.Context()))
	})
}

// For any kind of outage, the holder is notified exactly at the end of trust. The server still
// keeps the lock for the margin then.
func TestOutageLongerThanTheLeaseIsNotifiedWhenTrustEnds(t *testing.T) {
	t.Parallel()
	inject := func(a redistest.Action) func(*redistest.Virtual) func() {
		return func(v *redistest.Virtual) func() {
			return v.Inject(redistest.Rule{Match: redistest.Any(), Action: a}).Disarm
		}
	}
	for name, begin := range map[string]func(v *redistest.Virtual) (end func()){
		"nothing gets through":     func(v *redistest.Virtual) func() { v.BlackHole(redistest.AllTraffic); return v.Heal },
		"connections are refused":  func(v *redistest.Virtual) func() { v.Down(); return v.Up },
		"requests are swallowed":   inject(redistest.Swallow()),
		"replies are cut off":      inject(redistest.CutReply()),
		"every command is BUSY":    inject(redistest.Refuse("BUSY Redis is busy running a script.")),
		"every command is LOADING": inject(redistest.Refuse("LOADING Redis is loading the dataset in memory")),
		"every command is OOM":     inject(redistest.Refuse("OOM command not allowed when used memory > 'maxmemory'.")),
		"every command is NOPERM":  inject(redistest.Refuse("NOPERM this user has no permissions")),
		"nobody knows the error":   inject(redistest.Refuse("ERR something else")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { notifiedWhenTrustEnds(t, begin) })
		})
	}
}

func notifiedWhenTrustEnds(t *testing.T, begin func(v *redistest.Virtual) (end func())) {
	const lease, margin = 30 * time.Second, time.Second
	t.Cleanup(func() { time.Sleep(time.Minute) }) // go-redis goes on dialling for a while
	v := redistest.Bubble(t)
	log := stage.NewRecords()
	locks := stage.LocksOn(t, v.Client(), log.Option(), redlatch.WithLease(lease))
	chain := redlatch.WithOwner(t.Context())
	h := stage.MustLock(t, chain, locks.Mutex("a"))
	inner := stage.MustLock(t, chain, locks.Mutex("a"))
	time.Sleep(rand.N(time.Minute))
	synctest.Wait()
	stage.StillHeld(t, h)
	trusted := h.TrustedUntil()
	require.Equal(t, trusted.Add(margin), time.Now().Add(v.Server.TTL("a")), "trust ends a margin before the lease")

	end := begin(v)
	at, lost := lostAt(t, h)
	log.Await(t, "renewals began to fail") // or the fault did not bite
	require.Equal(t, trusted, at)
	require.GreaterOrEqual(t, v.Server.TTL("a"), margin, "the server still keeps it")
	require.True(t, stage.IsClosed(inner.Lost()), "all holds are notified")
	require.Equal(t, h.ID(), lost.ID)

	// Redis is back before the lease has ended, and so is the key. The hold stays lost.
	end()
	require.True(t, v.Server.Exists("a"))
	_, err := locks.Mutex("a").Lock(chain)
	require.ErrorIs(t, err, redlatch.ErrLost)
	require.ErrorIs(t, inner.Unlock(t.Context()), redlatch.ErrLost)
	require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrLost)
}

// Trust counts from before a command is sent. With any delay of replies, it ends at least the
// margin before the lease on the server.
func TestSlowRepliesDoNotStretchTrust(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease, margin = 10 * time.Second, time.Second
		v := redistest.Bubble(t)
		locks := stage.LocksOn(t, v.Client(), redlatch.WithLease(lease))
		slow := v.Inject(redistest.Rule{Match: redistest.Any(), Action: redistest.DelayReply(700 * time.Millisecond)})
		h := stage.MustLock(t, t.Context(), locks.Mutex("a"))
		for range 600 {
			serverEnds := time.Now().Add(v.Server.TTL("a"))
			require.GreaterOrEqual(t, serverEnds.Sub(h.TrustedUntil()), margin)
			stage.StillHeld(t, h)
			time.Sleep(100 * time.Millisecond)
		}
		require.Greater(t, slow.Bites(), 10)
		slow.Disarm()
		require.NoError(t, h.Unlock(t.Context()))
	})
}

// A re-entry proves the lease as of the instant at which its command was sent, and not of the
// instant at which the answer arrived.
func TestASlowReentryDoesNotStretchTrust(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease, margin, late = 30 * time.Second, time.Second, 1500 * time.Millisecond
		v := redistest.Bubble(t)
		m := stage.LocksOn(t, v.Client(), redlatch.WithLease(lease)).Mutex("a")
		outer := stage.MustLock(t, t.Context(), m)
		time.Sleep(time.Second) // long before the first renewal
		slow := v.Inject(redistest.Rule{Match: stage.AReentry, Times: 1, Action: redistest.DelayReply(late)})
		sent := time.Now()
		inner := stage.MustLock(t, outer.Context(), m)
		require.Equal(t, 1, slow.Bites())
		require.Equal(t, sent.Add(lease-margin), inner.TrustedUntil())
		require.NoError(t, inner.Unlock(t.Context()))
		require.NoError(t, outer.Unlock(t.Context()))
	})
}

// A renewal is for one acquisition. It does not extend or recreate the lock of a later holder. The
// end of that lock does not count as the end of this hold.
func TestRenewalIsOfNoUseToAnybodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		first := stage.LocksOn(t, v.Client(), redlatch.WithLease(10*time.Minute), redlatch.WithRenewInterval(time.Second))
		second := stage.LocksOn(t, v.Client(), redlatch.WithLease(time.Minute), redlatch.WithRenewInterval(30*time.Second))
		var lost []*lock.Hold
		for _, name := range []string{"taken over", "gone"} {
			lost = append(lost, stage.MustLock(t, t.Context(), first.Mutex(name)))
		}
		kept := stage.MustLock(t, t.Context(), first.Mutex("kept"))
		time.Sleep(10 * time.Second)
		v.Server.Del("taken over")
		v.Server.Del("gone")
		start := time.Now()
		other := stage.MustLock(t, t.Context(), second.Mutex("taken over"))

		for _, h := range lost {
			at, _ := lostAt(t, h)
			require.LessOrEqual(t, at.Sub(start), time.Second, "the next renewal tells it")
		}
		for range 10 {
			time.Sleep(time.Second)
			require.Equal(t, time.Minute-time.Since(start), v.Server.TTL("taken over"), "somebody else's lease was changed")
			require.False(t, v.Server.Exists("gone"), "a renewal made a lock")
		}
		for _, h := range lost {
			require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrLost)
		}
		stage.StillHeld(t, kept) // it was in the same batch
		stage.StillHeld(t, other)
		time.Sleep(time.Hour)
		stage.StillHeld(t, kept)
		stage.StillHeld(t, other)
		require.NoError(t, kept.Unlock(t.Context()))
		require.NoError(t, other.Unlock(t.Context()))
	})
}

// outage is a real server that fails for a while, the proxy in front of it, and the client whose
// hold must not notice that.
type outage struct {
	*testing.T
	server *redistest.Server
	proxy  *redistest.Proxy
}

const (
	blipLease = 8 * time.Second // much longer than a busy machine may stop the test
	blip      = blipLease * 4 / 10
)

func (o *outage) control(args ...any) {
	o.Helper()
	require.NoError(o, o.server.Control().Do(context.Background(), args...).Err())
}

// The server is away for less than the lease, and comes back. Renewals fail, but the holder does
// not notice that.
func TestOutageShorterThanTheLeaseIsInvisible(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args  []string
		begin func(o *outage) (end func())
	}{
		"connections refused": {nil, func(o *outage) func() { o.proxy.Down(); return o.proxy.Up }},
		"black hole":          {nil, func(o *outage) func() { o.proxy.BlackHole(redistest.AllTraffic); return o.proxy.Heal }},
		"server stopped":      {nil, func(o *outage) func() { o.server.Pause(); return o.server.Resume }},
		"CLIENT PAUSE": {nil, func(o *outage) func() {
			o.control("CLIENT", "PAUSE", blip.Milliseconds(), "WRITE")
			return func() {}
		}},
		"READONLY": {nil, func(o *outage) func() {
			o.control("REPLICAOF", "127.0.0.1", "1")
			o.proxy.ResetCounts()
			require.Eventually(o, func() bool { return o.proxy.Forwarded("evalsha") >= 3 }, stage.Guard, time.Millisecond)
			return func() { o.control("REPLICAOF", "NO", "ONE") }
		}},
		"BUSY":    {[]string{"--lua-time-limit", "1"}, busy},
		"LOADING": {[]string{"--save", "3600 1", "--rdbcompression", "no", "--key-load-delay", "100000", "--loading-process-events-interval-bytes", "1024"}, loading},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "LOADING" && strings.HasPrefix(redistest.Shared(t).Version(), "6.") {
				t.Skip("left out on Redis 6.2, which cannot be made to load slowly and answer meanwhile")
			}
			s := redistest.Start(t, c.args...)
			o := &outage{t, s, redistest.NewProxy(t, s.Addr())}
			invisible(o, name == "READONLY", c.begin)
		})
	}
}

func invisible(o *outage, refusing bool, begin func(o *outage) (end func())) {
	log := stage.NewRecords()
	locks := stage.LocksOn(o, o.proxy.Client(), log.Option(), redlatch.WithLease(blipLease), redlatch.WithRenewInterval(blipLease/10))
	m := locks.Mutex(redistest.Name(o))
	h := stage.MustLock(o, o.Context(), m)
	inner := stage.MustLock(o, h.Context(), m)

	stage.AwaitRenewal(o, h)
	over := time.After(blip) // the length of the outage
	end := begin(o)
	if !refusing {
		log.Await(o, "renewals began to fail")
	}
	stage.Within(o, over, "the outage is over")
	end()
	if !refusing {
		log.Await(o, "renewals work again")
	}

	stage.AwaitRenewal(o, h)
	stage.StillHeld(o, inner)
	info, err := m.Inspect(o.Context())
	require.NoError(o, err)
	require.Equal(o, h.ID(), info.Holder)
	require.Equal(o, h.Fence(), info.Fence)
	require.NoError(o, inner.Unlock(o.Context()))
	require.NoError(o, h.Unlock(o.Context()))
}

// busy makes the server run a script without end, and waits until the server replies BUSY.
func busy(o *outage) (end func()) {
	endless := o.server.Client(o, func(opt *redis.Options) { opt.MaxRetries, opt.ReadTimeout = -1, -1 })
	ended := make(chan error, 1)
	go func() { ended <- endless.Eval(context.Background(), "while true do end", nil).Err() }()
	require.Eventually(o, func() bool {
		return redis.HasErrorPrefix(o.server.Control().Ping(context.Background()).Err(), "BUSY")
	}, stage.Guard, time.Millisecond)
	return func() {
		o.control("SCRIPT", "KILL")
		require.Error(o, stage.Within(o, ended, "the script is killed"))
	}
}

// loading restarts the server, which keeps its data and takes its time to load them.
func loading(o *outage) (end func()) {
	pipe := o.server.Control().Pipeline()
	for i := range 200 { // between two of them it serves its connections
		pipe.Set(context.Background(), strconv.Itoa(i), strings.Repeat("v", 1024), 0)
	}
	_, err := pipe.Exec(context.Background())
	require.NoError(o, err)
	o.server.Stop()
	o.server.Relaunch()
	require.True(o, redis.IsLoadingError(o.server.Control().Ping(context.Background()).Err()), "the fault did not bite")
	return func() { o.control("CONFIG", "SET", "key-load-delay", "0") }
}

// These faults end immediately, and may not even make a renewal fail.
func TestShortFaultsAreInvisible(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ strike, bitten func(o *outage) }{
		"connections cut": {
			func(o *outage) { o.proxy.KillAll() },
			func(o *outage) { require.Positive(o, o.proxy.Accepted()) },
		},
		"CLIENT KILL": {
			func(o *outage) { o.control("CLIENT", "KILL", "TYPE", "normal") },
			func(o *outage) { require.Positive(o, o.proxy.Accepted()) },
		},
		"SCRIPT FLUSH": {
			func(o *outage) { o.control("SCRIPT", "FLUSH") },
			func(o *outage) { require.Positive(o, o.proxy.Forwarded("eval"), "no script was sent anew") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			o := &outage{t, s, redistest.NewProxy(t, s.Addr())}
			locks := stage.LocksOn(t, o.proxy.Client(), redlatch.WithLease(blipLease), redlatch.WithRenewInterval(50*time.Millisecond))
			m := locks.Mutex(redistest.Name(t))
			h := stage.MustLock(t, t.Context(), m)
			for range 10 {
				o.proxy.ResetCounts()
				c.strike(o)
				stage.AwaitRenewal(t, h)
				stage.AwaitRenewal(t, h) // the first may have been in flight
				c.bitten(o)
			}
			require.NoError(t, h.Unlock(t.Context()))
			require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrNotHeld)
		})
	}
}

// This is the test in virtual time, on a real server with a real clock. Trust ends before the lease
// does, and ends by itself.
func TestStoppedServerIsDetectedAndTrustEndsBeforeItsLease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locks := stage.LocksOn(t, s.Client(t), redlatch.WithLease(4*time.Second), redlatch.WithRenewInterval(400*time.Millisecond))
	name := redistest.Name(t)
	h := stage.MustLock(t, t.Context(), locks.Mutex(name))
	var ends int64 // of the server's lease, by the clock of this machine
	for range 10 {
		trusted := h.TrustedUntil().UnixMicro() // first, because a renewal in between only moves the other time
		got, err := s.Control().Eval(t.Context(),
			"local t = redis.call('TIME') return {t[1] * 1000000 + t[2], redis.call('PTTL', KEYS[1])}", []string{name}).Int64Slice()
		require.NoError(t, err)
		ends = got[0] + got[1]*1000
		require.Less(t, trusted, ends)
		stage.AwaitRenewal(t, h)
	}
	s.Pause()
	_, lost := lostAt(t, h)
	require.Contains(t, lost.Error(), "could not be confirmed")
	s.Resume()
	require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrLost)
}

// Unlock and renewal meet in every order, up to twenty thousand times here, and a hundred thousand
// times on a real server. After an Unlock, a renewal on the wire or a key could remain. For most of
// the test the server is a few lines of Go, because scripts on the embedded one would take minutes.
func TestNoRenewalOutlivesUnlock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cycles int
		model  bool
	}{"model": {redistest.Rounds(2_000, 20_000), true}, "embedded": {1_000, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				rdb := v.Client()
				wire := &renewals{over: make(map[string]bool, c.cycles)}
				rdb.AddHook(wire)
				if c.model {
					rdb.AddHook(&modelServer{locks: make(map[string]modelLock)})
				}
				unlocksAndRenewals(t, stage.LocksOn(t, rdb, redlatch.WithLease(100*time.Millisecond), redlatch.WithRenewInterval(10*time.Millisecond)), wire, c.cycles)
				for _, key := range v.Server.Keys() {
					require.Contains(t, key, "redisson_lock_token:")
				}
			})
		})
	}
}

func unlocksAndRenewals(t *testing.T, locks *redlatch.Client, wire *renewals, cycles int) {
	const atOnce = 20
	var g sync.WaitGroup
	for n := range atOnce {
		g.Go(func() {
			m := locks.Mutex("lock " + strconv.Itoa(n))
			for i := range cycles / atOnce {
				h, err := m.Lock(context.Background())
				if !assert.NoError(t, err) {
					return
				}
				if i%2 == 0 {
					time.Sleep(rand.N(12 * time.Millisecond))
				}
				if !assert.NoError(t, h.Unlock(context.Background())) {
					return
				}
				wire.unlocked(h.ID())
			}
		})
	}
	g.Wait()
	require.Greater(t, wire.sent, cycles/20, "hardly any renewal to meet")
	require.Empty(t, wire.late, "renewed after Unlock")
	before := wire.all.Load()
	time.Sleep(time.Minute)
	require.Equal(t, before, wire.all.Load(), "something is still sent")
}

// modelServer answers the scripts instead of a server.
type modelServer struct {
	mu    sync.Mutex
	fence int64
	locks map[string]modelLock
}

type modelLock struct {
	holder string
	ends   time.Time
}

func (s *modelServer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *modelServer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(s, next)
}

func (s *modelServer) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		script := lua.ScriptName([]string{args[0].(string), args[1].(string)})
		keys := redistest.KeyCount(args)
		cmd.(interface{ SetVal(any) }).SetVal(s.run(script, args[3:3+keys], args[3+keys:]))
		return nil
	}
}

// run answers acquire, release and renew.
func (s *modelServer) run(script string, keys, args []any) []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, now := keys[0].(string), time.Now()
	l, held := s.locks[name]
	if now.After(l.ends) {
		held = false
	}
	switch {
	case script == "mutex/renew":
		return s.renew(keys, args)
	case script == "mutex/acquire" && args[3].(int64) < now.UnixMicro():
		return []any{int64(-2), now.UnixMicro()}
	case script == "mutex/acquire" && !held:
		s.fence++
		s.locks[name] = modelLock{args[0].(string), now.Add(time.Duration(args[1].(int64)) * time.Millisecond)}
		return []any{int64(1), s.fence, now.UnixMicro()}
	case script == "mutex/release" && held && l.holder == args[0]:
		delete(s.locks, name)
		return []any{int64(1), int64(0), int64(0)}
	}
	return []any{int64(0), time.Until(l.ends).Milliseconds(), l.holder, "", now.UnixMicro()}
}

func (s *modelServer) renew(keys, args []any) []any {
	answers := make([]any, len(keys))
	for i, k := range keys {
		name := k.(string)
		answers[i] = int64(0)
		if l, held := s.locks[name]; held && l.holder == args[2*i] && time.Now().Before(l.ends) {
			s.locks[name] = modelLock{l.holder, time.Now().Add(time.Duration(args[2*i+1].(int64)) * time.Millisecond)}
			answers[i] = int64(2)
		}
	}
	return answers
}

// A server forgets its scripts, and its answers take a quarter of the lease. When the client learns
// that, it has given up the call. It sends the text nevertheless.
func TestRenewalsSurviveAScriptFlushOverASlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t, redlatch.WithLease(3*time.Second))
		ctx := context.Background()
		h, err := s.Mutex.Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, s.Direct.ScriptFlush(ctx).Err())
		slow := s.Proxy.Inject(redistest.Rule{Match: redistest.Command("EVALSHA", "EVAL"), Action: redistest.DelayRequest(820 * time.Millisecond)})
		time.Sleep(time.Minute)
		require.True(t, h.Trusted())
		slow.Disarm()
		require.NoError(t, h.Unlock(ctx))
	})
}
