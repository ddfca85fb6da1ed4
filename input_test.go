package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// sentinels are all of them. Every error matches exactly one: nothing is two
// things at once.
var sentinels = map[string]error{
	"ErrNotAcquired": redlatch.ErrNotAcquired, "ErrLost": redlatch.ErrLost, "ErrNotHeld": redlatch.ErrNotHeld,
	"ErrIndeterminate": redlatch.ErrIndeterminate, "ErrUnavailable": redlatch.ErrUnavailable,
	"ErrRefused": redlatch.ErrRefused, "ErrClosed": redlatch.ErrClosed, "ErrConfig": redlatch.ErrConfig,
}

// requireOnly asserts that err matches one sentinel and no other.
func requireOnly(t testing.TB, want, err error, about ...any) {
	t.Helper()
	require.ErrorIs(t, err, want, about...)
	for name, other := range sentinels {
		require.Equal(t, other == want, errors.Is(err, other), "%s: %v", name, err) //nolint:errorlint // the very value
	}
}

// requireBad asserts a *ConfigError that names the value.
func requireBad(t testing.TB, err error, what string, value any) {
	t.Helper()
	requireOnly(t, redlatch.ErrConfig, err)
	var bad *redlatch.ConfigError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, what, bad.What)
	require.Equal(t, value, bad.Value)
	require.NotEmpty(t, bad.Why)
	require.Contains(t, err.Error(), what)
	require.Less(t, len(err.Error()), 600, "a bad value does not flood the log")
	require.NotContains(t, err.Error(), "\x00")
	require.NotContains(t, err.Error(), "\n")
}

// unused is a client that must not be asked: nobody listens there.
func unused(t testing.TB) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	rdb.AddHook(noTraffic{t})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

type noTraffic struct{ t testing.TB }

func (h noTraffic) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		h.t.Error("dialled")
		return next(ctx, network, addr)
	}
}

func (h noTraffic) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.t.Errorf("Redis was asked: %v", cmd.Args()[0])
		return next(ctx, cmd)
	}
}

func (h noTraffic) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestBadNamesAreRefusedByEveryUse(t *testing.T) {
	t.Parallel()
	locks, err := redlatch.New(unused(t))
	require.NoError(t, err)
	for _, name := range []string{
		"", strings.Repeat("x", 513), strings.Repeat("🔒", 129), "nul\x00", "line\nfeed", "tab\t", "escape\x1b[2J", "delete\x7f",
		"no utf-8 \xff", "{}", "a{}b", "a{b", "a}b", "}a{", "{a}{b}", "{{a}}", "{a}}",
	} {
		mu := locks.Mutex(name)
		for use, err := range map[string]error{
			"Lock":         func() error { _, err := mu.Lock(t.Context()); return err }(),
			"TryLock":      func() error { _, err := mu.TryLock(t.Context()); return err }(),
			"Do":           mu.Do(t.Context(), func(context.Context) error { panic("runs") }),
			"Inspect":      func() error { _, err := mu.Inspect(t.Context()); return err }(),
			"ForceRelease": func() error { _, err := mu.ForceRelease(t.Context(), ""); return err }(),
		} {
			require.Error(t, err, "%s of %q", use, name)
			requireBad(t, err, "lock name", name)
		}
	}
	require.NoError(t, locks.Close(t.Context()))

	prefixed, err := redlatch.New(unused(t), redlatch.WithPrefix("svc:"))
	require.NoError(t, err)
	_, err = prefixed.Mutex(strings.Repeat("x", 509)).TryLock(t.Context())
	requireBad(t, err, "lock name", "svc:"+strings.Repeat("x", 509))
	require.NoError(t, prefixed.Close(t.Context()))
}

func TestGoodNamesWorkOnAServer(t *testing.T) {
	t.Parallel()
	onServer(t, func(s *stage) {
		a, b := s.actor(), s.actor()
		for _, name := range []string{
			"a", "orders:42", "with space", " ", "täg", "🔒", "日本語", "{a}", "x{a}y", "*", "?[x]", `back\slash`, `"quoted"`, "%s", "-1",
			strings.Repeat("x", 512),
		} {
			hold := a.lock(name)
			require.Equal(t, []string{name}, s.keys(), "%q", name)
			_, err := b.Mutex(name).TryLock(b.ctx)
			require.ErrorIs(t, err, redlatch.ErrNotAcquired, "%q", name)
			require.ErrorContains(t, err, fmt.Sprintf("%q", name))
			waits := b.begin(b.ctx, name).asked(2)
			s.unlock(hold)
			next := waits.got()
			require.Greater(t, next.Fence(), hold.Fence())
			s.unlock(next)
			require.Empty(t, s.keys(), "%q", name)
		}
	})
}

func TestBadSettingsAreRefusedByTheClientAndByTheLock(t *testing.T) {
	t.Parallel()
	const what = "renewal interval"
	for _, c := range []struct {
		options []redlatch.LockOption
		what    string
		value   any
	}{
		{with(redlatch.WithLease(0)), "lease", time.Duration(0)},
		{with(redlatch.WithLease(-time.Second)), "lease", -time.Second},
		{with(redlatch.WithLease(99 * time.Millisecond)), "lease", 99 * time.Millisecond},
		{with(redlatch.WithLease(time.Second + time.Microsecond)), "lease", time.Second + time.Microsecond},
		{with(redlatch.WithLease(366 * 24 * time.Hour)), "lease", 366 * 24 * time.Hour},
		{with(redlatch.WithLease(1<<63 - 1)), "lease", time.Duration(1<<63 - 1)},
		{with(redlatch.WithRenewal(0)), what, nil},
		{with(redlatch.WithRenewal(-time.Second)), what, -time.Second},
		{with(redlatch.WithRenewal(15*time.Second + time.Nanosecond)), what, 15*time.Second + time.Nanosecond},
		{with(redlatch.WithLease(time.Second), redlatch.WithRenewal(time.Second)), what, time.Second},
		{with(redlatch.WithPoll(0)), "poll bound", time.Duration(0)},
		{with(redlatch.WithPoll(-1)), "poll bound", time.Duration(-1)},
		{with(redlatch.WithTurns(0)), "turns in a row", 0},
		{with(redlatch.WithTurns(-3)), "turns in a row", -3},
		{with(redlatch.WithMaxHold(-1)), "maximum hold time", time.Duration(-1)},
		{with(redlatch.WithSelfWaitWarning(-1)), "self-wait warning", time.Duration(-1)},
	} {
		var forClient []redlatch.Option
		for _, o := range c.options {
			forClient = append(forClient, o)
		}
		locks, err := redlatch.New(unused(t), forClient...)
		require.Nil(t, locks)
		require.Error(t, err, c.what)
		if c.value == nil { // a zero that was asked for is not the zero of "not set"
			requireOnly(t, redlatch.ErrConfig, err)
			require.ErrorContains(t, err, c.what)
			continue
		}
		requireBad(t, err, c.what, c.value)

		locks, err = redlatch.New(unused(t))
		require.NoError(t, err)
		_, err = locks.Mutex("door", c.options...).Lock(t.Context())
		requireBad(t, err, c.what, c.value)
		require.NoError(t, locks.Close(t.Context()))
	}
}

func with(options ...redlatch.LockOption) []redlatch.LockOption { return options }

func TestSettingsAtTheirBoundsAreAccepted(t *testing.T) {
	t.Parallel()
	for _, options := range [][]redlatch.Option{
		{redlatch.WithLease(100 * time.Millisecond)},
		{redlatch.WithLease(365 * 24 * time.Hour)},
		{redlatch.WithLease(time.Second), redlatch.WithRenewal(500 * time.Millisecond)},
		{redlatch.WithPoll(1), redlatch.WithTurns(1), redlatch.WithMaxHold(0), redlatch.WithSelfWaitWarning(0)},
		{redlatch.WithDescription(""), redlatch.WithFenceRetention(0), redlatch.WithPrefix("")},
		{redlatch.WithDescription(strings.Repeat("x", 256))},
	} {
		_, err := redlatch.New(unused(t), options...)
		require.NoError(t, err)
	}
}

func TestBadClientsAreRefused(t *testing.T) {
	t.Parallel()
	var typedNil *redis.Client
	var typedNilCluster *redis.ClusterClient
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for name, rdb := range map[string]redis.UniversalClient{
		"nil": nil, "nil client": typedNil, "nil cluster client": typedNilCluster, "ring": ring,
	} {
		locks, err := redlatch.New(rdb)
		require.Nil(t, locks, name)
		requireOnly(t, redlatch.ErrConfig, err, name)
		require.ErrorContains(t, err, "redis client", name)
		require.NotEmpty(t, err.Error(), name)
	}
	for what, option := range map[string]redlatch.Option{
		"logger":          redlatch.WithLogger(nil),
		"description":     redlatch.WithDescription(strings.Repeat("x", 257)),
		"fence retention": redlatch.WithFenceRetention(-time.Millisecond),
	} {
		_, err := redlatch.New(unused(t), option)
		requireOnly(t, redlatch.ErrConfig, err, what)
		require.ErrorContains(t, err, what)
	}
	_, err := redlatch.New(unused(t), redlatch.WithFenceRetention(time.Microsecond))
	requireBad(t, err, "fence retention", time.Microsecond)
}

// A server that will not do it says why, once, and nothing is written.
func TestWhatRedisRefusesChangesNothing(t *testing.T) {
	t.Parallel()
	const lock, fence = "door", "redisson_lock_token:{door}"
	set := func(args ...any) func(*stage) {
		return func(s *stage) { require.NoError(s, s.admin.Do(context.Background(), args...).Err()) }
	}
	for _, c := range []struct {
		name, says string
		prepare    func(s *stage)
		moves      string // a key that may change
	}{
		{"a string at the lock's key", "WRONGTYPE", set("SET", lock, "mine"), ""},
		{"a list at the lock's key", "WRONGTYPE", set("RPUSH", lock, "mine"), ""},
		{"a read-write lock of Redisson", "WRONGTYPE", set("HSET", lock, "mode", "write", "a:1:write", "1"), ""},
		{"a set at the fence's key", "WRONGTYPE", set("SADD", fence, "mine"), ""},
		{"a hash at the fence's key", "WRONGTYPE", set("HSET", fence, "mine", "1"), ""},
		{"a fence that is no number", "BADFENCE", set("SET", fence, "seven"), ""},
		{"a fence that is not whole", "BADFENCE", set("SET", fence, "1.5"), ""},
		{"a negative fence", "BADFENCE", set("SET", fence, "-1"), ""},
		{"a fence that cannot grow", "BADFENCE", set("SET", fence, "9007199254740991"), ""},
		{"a fence beyond all numbers", "BADFENCE", set("SET", fence, "9223372036854775807"), ""},
		{"no memory", "OOM", set("CONFIG", "SET", "maxmemory", "1"), ""},
		{"a password", "NOAUTH|unauthenticated", set("CONFIG", "SET", "requirepass", "secret"), ""},
		{"the lock's key denied", "NOPERM", set("ACL", "SETUSER", "default", "resetkeys", "~redisson*"), ""},
		{"the fence's key denied", "NOPERM", set("ACL", "SETUSER", "default", "resetkeys", "~door"), ""},
		{"scripts denied", "NOPERM", set("ACL", "SETUSER", "default", "-@scripting"), ""},
		{"HSET denied", deniedText.String(), set("ACL", "SETUSER", "default", "-hset"), fence},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onServer(t, func(s *stage) {
				a := s.actor()
				c.prepare(s)
				before := s.dump()
				delete(before, c.moves)
				start := a.scripts.Load()
				for use, f := range map[string]func() error{
					"Lock":    func() error { _, err := a.Mutex("door").Lock(a.ctx); return err }, // at once, though ctx has no end
					"TryLock": func() error { _, err := a.Mutex("door").TryLock(a.ctx); return err },
					"Do":      func() error { return a.Mutex("door").Do(a.ctx, func(context.Context) error { panic("runs") }) },
				} {
					if c.name == "a password" {
						a.reconnects() // Redis ends the connection with this answer
					}
					err := f()
					requireOnly(t, redlatch.ErrRefused, err, use)
					require.ErrorContains(t, err, `"door"`, use)
					var op *redlatch.OpError
					require.ErrorAs(t, err, &op, use)
					require.Equal(t, "lock", op.Op)
					require.Regexp(t, c.says, err.Error(), use)
				}
				after := s.dump()
				delete(after, c.moves)
				require.Equal(t, before, after)
				require.LessOrEqual(t, a.scripts.Load()-start, int64(4), "no use of asking again")
			})
		})
	}
}

// reconnects gives the actor new connections, whose logins meet the rules of now.
func (a *actor) reconnects() {
	a.s.Helper()
	require.NoError(a.s, a.Close(a.ctx))
	rdb := a.s.newClient(a.net, nil)
	rdb.AddHook(scriptHook{answered: a.scripts})
	var err error
	a.Client, err = redlatch.New(rdb, redlatch.WithLogger(slog.New(a.log)))
	require.NoError(a.s, err)
}

// dump is all that the server stores, as its own bytes.
func (s *stage) dump() map[string]string {
	s.Helper()
	ctx := context.Background()
	all, err := s.admin.Keys(ctx, "*").Result()
	require.NoError(s, err)
	stored := map[string]string{}
	for _, k := range all {
		bytes, err := s.admin.Dump(ctx, k).Result()
		require.NoError(s, err)
		stored[k] = bytes + " " + s.admin.PExpireTime(ctx, k).String()
	}
	return stored
}

// A server out of memory takes no new lock; those that are held go on and end.
func TestHeldLocksSurviveAServerOutOfMemory(t *testing.T) {
	t.Parallel()
	onServer(t, func(s *stage) {
		a := s.actor(redlatch.WithLease(300 * time.Millisecond))
		chain := redlatch.WithOwner(a.ctx)
		h, err := a.Mutex("door").Lock(chain)
		require.NoError(t, err)
		require.NoError(t, s.admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
		_, err = a.Mutex("other").TryLock(a.ctx)
		requireOnly(t, redlatch.ErrRefused, err)

		trusted := h.TrustedUntil()
		s.await("it is renewed", func() bool { return h.TrustedUntil().After(trusted) })
		inner, err := a.Mutex("door").Lock(chain)
		require.NoError(t, err, "re-entry")
		s.unlock(inner)
		info, err := a.Mutex("door").Inspect(a.ctx)
		require.NoError(t, err)
		require.Equal(t, 1, info.Holds)
		s.unlock(h)
		require.Empty(t, s.keys())
	})
}

// One row for each cause: what it is called, and that it is called nothing else.
func TestEachCauseMatchesItsSentinel(t *testing.T) {
	t.Parallel()
	type cause struct {
		name  string
		want  error
		also  error // visible beside it
		cause func(s *stage, a, b *actor) error
	}
	soon := func(a *actor) (context.Context, context.CancelFunc) { return context.WithTimeout(a.ctx, 3*time.Second) }
	for _, c := range []cause{
		{"a try at a held lock", redlatch.ErrNotAcquired, nil, func(s *stage, a, b *actor) error {
			defer s.unlock(b.lock("door"))
			_, err := a.Mutex("door").TryLock(a.ctx)
			return err
		}},
		{"a wait that ended by its deadline", redlatch.ErrNotAcquired, context.DeadlineExceeded, func(s *stage, a, b *actor) error {
			defer s.unlock(b.lock("door"))
			ctx, cancel := soon(a)
			defer cancel()
			_, err := a.Mutex("door").Lock(ctx)
			return err
		}},
		{"a context that had ended before", context.Canceled, context.Canceled, func(_ *stage, a, _ *actor) error {
			ctx, cancel := context.WithCancel(a.ctx)
			cancel()
			_, err := a.Mutex("door").Lock(ctx)
			return err
		}},
		{"a forced release of another than expected", redlatch.ErrNotAcquired, nil, func(s *stage, a, b *actor) error {
			defer s.unlock(b.lock("door"))
			_, err := a.Mutex("door").ForceRelease(a.ctx, "someone:1")
			return err
		}},
		{"an unlock of what is gone", redlatch.ErrLost, nil, func(s *stage, a, _ *actor) error {
			h := a.lock("door")
			s.sim.FlushAll()
			return h.Unlock(a.ctx)
		}},
		{"a re-entry of what is gone", redlatch.ErrLost, nil, func(s *stage, a, _ *actor) error {
			h := a.lock("door")
			s.sim.FlushAll()
			_, err := a.Mutex("door").Lock(h.Context())
			return err
		}},
		{"an unlock after a forced release", redlatch.ErrLost, nil, func(s *stage, a, b *actor) error {
			h := a.lock("door")
			_, err := b.Mutex("door").ForceRelease(b.ctx, "")
			require.NoError(s, err)
			return h.Unlock(a.ctx)
		}},
		{"a second unlock", redlatch.ErrNotHeld, nil, func(s *stage, a, _ *actor) error {
			h := a.lock("door")
			s.unlock(h)
			return h.Unlock(a.ctx)
		}},
		{"an unlock of nothing", redlatch.ErrNotHeld, nil, func(_ *stage, a, b *actor) error {
			hold, _ := a.Mutex("").TryLock(a.ctx)
			return hold.Unlock(a.ctx)
		}},
		{"a question without an answer", redlatch.ErrIndeterminate, context.DeadlineExceeded, func(_ *stage, a, _ *actor) error {
			a.net.deaf.Store(true)
			a.net.blackHole(func(*wire) bool { return true })
			ctx, cancel := soon(a)
			defer cancel()
			_, err := a.Mutex("door").Lock(ctx)
			return err
		}},
		{"a release without an answer", redlatch.ErrIndeterminate, context.DeadlineExceeded, func(_ *stage, a, _ *actor) error {
			h := a.lock("door")
			a.net.deaf.Store(true)
			a.net.blackHole(func(*wire) bool { return true })
			ctx, cancel := soon(a)
			defer cancel()
			return h.Unlock(ctx)
		}},
		{"nobody there", redlatch.ErrUnavailable, context.DeadlineExceeded, func(_ *stage, a, _ *actor) error {
			a.die()
			ctx, cancel := context.WithTimeout(a.ctx, time.Minute)
			defer cancel()
			_, err := a.Mutex("door").Lock(ctx)
			return err
		}},
		{"a server that loads", redlatch.ErrUnavailable, context.DeadlineExceeded, func(s *stage, a, _ *actor) error {
			s.sim.SetError("LOADING Redis is loading the dataset in memory")
			defer s.sim.SetError("")
			ctx, cancel := context.WithTimeout(a.ctx, time.Minute)
			defer cancel()
			_, err := a.Mutex("door").Lock(ctx)
			return err
		}},
		{"a server that does not do it", redlatch.ErrRefused, nil, func(s *stage, a, _ *actor) error {
			require.NoError(s, s.sim.Set("door", "mine"))
			_, err := a.Mutex("door").Lock(a.ctx)
			return err
		}},
		{"a closed client", redlatch.ErrClosed, nil, func(s *stage, a, _ *actor) error {
			require.NoError(s, a.Close(a.ctx))
			_, err := a.Mutex("door").Lock(a.ctx)
			return err
		}},
		{"an unlock that Close was faster than", redlatch.ErrClosed, nil, func(s *stage, a, _ *actor) error {
			h := a.lock("door")
			require.NoError(s, a.Close(a.ctx))
			return h.Unlock(a.ctx)
		}},
		{"a bad name", redlatch.ErrConfig, nil, func(_ *stage, a, _ *actor) error {
			_, err := a.Mutex("{").Lock(a.ctx)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(s *stage) {
				a, b := s.actor(redlatch.WithLease(30*time.Second)), s.actor()
				err := c.cause(s, a, b)
				requireOnly(t, c.want, err)
				if c.also != nil {
					require.ErrorIs(t, err, c.also)
				}
				for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
					if c.want != redlatch.ErrIndeterminate { // what go-redis says of a timeout may show too
						require.Equal(t, end == c.also, errors.Is(err, end), "%v: %v", end, err) //nolint:errorlint // the very value
					}
				}
				require.Contains(t, err.Error(), "redlatch: ")
			})
		})
	}
}

// A client shows what it was made with only where it should.
func TestErrorsDoNotShowCredentials(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t, func(o *redis.Options) {
		o.Username, o.Password = "nobody", "very-secret"
		o.MaxRetries = -1
		o.DialerRetries = 1
	})
	log := &logbook{}
	locks, err := redlatch.New(rdb, redlatch.WithLogger(slog.New(log)))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	defer cancel()
	_, err = locks.Mutex("door").Lock(ctx)
	requireOnly(t, redlatch.ErrRefused, err)
	require.ErrorContains(t, err, "WRONGPASS")
	require.NotContains(t, err.Error(), "very-secret")
	require.NoError(t, locks.Close(ctx))
}
