package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// unseen are texts that a terminal would not show as they are stored.
var unseen = []string{
	"nul\x00", "line\nfeed", "return\r", "tab\t", "escape\x1b[2J", "delete\x7f", "next line\u0085", "no utf-8 \xff", "half a rune \xe2\x80",
	"override \u202e", "isolate \u2066", "mark \u200e", "zero width \u200b", "variation \ufe0f", "variation \U000e0100", "mongolian \u180b", "braille \u2800", "joiner \u200d", "non-joiner \u200c", "word joiner \u2060",
	"byte order \ufeff", "soft hyphen \u00ad", "line \u2028", "paragraph \u2029", "filler \u3164", "hangul filler \u115f", "khmer vowel \u17b4", "grapheme joiner \u034f", "tag \U000e0041",
}

// Do without a function takes no lock.
func TestDoWithoutAFunctionIsRefused(t *testing.T) {
	t.Parallel()
	locks, err := redlatch.New(stage.Unused(t))
	require.NoError(t, err)
	for kind, do := range map[string]func() error{
		"mutex":          func() error { return locks.Mutex("orders").Do(t.Context(), nil) },
		"fair":           func() error { return locks.FairMutex("orders").Do(t.Context(), nil) },
		"semaphore":      func() error { return locks.Semaphore("orders", 3).Do(t.Context(), 1, nil) },
		"mutex, try":     func() error { return locks.Mutex("orders").TryDo(t.Context(), nil) },
		"fair, try":      func() error { return locks.FairMutex("orders").TryDo(t.Context(), nil) },
		"semaphore, try": func() error { return locks.Semaphore("orders", 3).TryDo(t.Context(), 1, nil) },
		"call": func() error {
			_, err := redlatch.Call[int](t.Context(), locks.Mutex("orders"), nil)
			return err
		},
	} {
		err := do()
		var bad *redlatch.ConfigError
		require.ErrorAs(t, err, &bad, kind)
		require.Equal(t, "function", bad.Setting, kind)
	}
}

// The function that acquires is the program's own, and may be wrong.
func TestDoOfPackageLockChecksWhatItGets(t *testing.T) {
	t.Parallel()
	type acquire = func(context.Context) (*lock.Hold, error)
	none := func(hold *lock.Hold) acquire {
		return func(context.Context) (*lock.Hold, error) { return hold, nil }
	}
	work := func(context.Context) error { panic("it must not run") }
	var noContext context.Context
	for setting, do := range map[string]func() error{
		"context":                func() error { return lock.Do(noContext, none(nil), work) },
		"function that acquires": func() error { return lock.Do(t.Context(), nil, work) },
		"function":               func() error { return lock.Do(t.Context(), none(nil), nil) },
		"hold":                   func() error { return lock.Do(t.Context(), none(nil), work) },
		"hold ":                  func() error { return lock.Do(t.Context(), none(new(lock.Hold)), work) },
	} {
		var bad *redlatch.ConfigError
		require.ErrorAs(t, do(), &bad, setting)
		require.Equal(t, strings.TrimSpace(setting), bad.Setting)
	}
}

func TestBadNamesAreRefusedByEveryUse(t *testing.T) {
	t.Parallel()
	locks, err := redlatch.New(stage.Unused(t))
	require.NoError(t, err)
	for _, name := range append([]string{
		"", strings.Repeat("x", 513), strings.Repeat("🔒", 129), "{}", "a{}b", "a{b", "a}b", "}a{", "{a}{b}", "{{a}}", "{a}}",
		"redisson_lock_token:{a}", "redlatch:queue:{a}", "redlatch:permits-alive::a{b}",
	}, unseen...) {
		mu := locks.Mutex(name)
		for use, err := range map[string]error{
			"Lock":         func() error { _, err := mu.Lock(t.Context()); return err }(),
			"TryLock":      func() error { _, err := mu.TryLock(t.Context()); return err }(),
			"Do":           mu.Do(t.Context(), func(context.Context) error { panic("runs") }),
			"TryDo":        mu.TryDo(t.Context(), func(context.Context) error { panic("runs") }),
			"Inspect":      func() error { _, err := mu.Inspect(t.Context()); return err }(),
			"ForceRelease": func() error { _, err := mu.ForceRelease(t.Context(), ""); return err }(),
		} {
			require.Error(t, err, "%s of %q", use, name)
			stage.RequireBad(t, err, "lock name", name)
		}
	}
	require.NoError(t, locks.Close(t.Context()))

	prefixed, err := redlatch.New(stage.Unused(t), redlatch.WithPrefix("svc:"))
	require.NoError(t, err)
	_, err = prefixed.Mutex(strings.Repeat("x", 509)).TryLock(t.Context())
	stage.RequireBad(t, err, "lock name", "svc:"+strings.Repeat("x", 509))
	require.NoError(t, prefixed.Close(t.Context()))

	// The library checks a name together with its prefix. So a name that begins like the library's
	// own keys reaches none of them.
	prefixed, err = redlatch.New(stage.Unused(t), redlatch.WithPrefix("redlatch:"))
	require.NoError(t, err)
	for _, name := range []string{"queue:{a}", "alive::{a}b", "permits:{a}", "holders:{a}", "permits-queue:{a}", "permits-alive:{a}"} {
		_, err = prefixed.Mutex(name).TryLock(t.Context())
		stage.RequireBad(t, err, "lock name", "redlatch:"+name)
		_, err = prefixed.Semaphore(name, 1).TryAcquire(t.Context(), 1)
		stage.RequireBad(t, err, "lock name", "redlatch:"+name)
	}
	require.NoError(t, prefixed.Close(t.Context()))
}

func TestGoodNamesWorkOnAServer(t *testing.T) {
	t.Parallel()
	stage.OnServer(t, func(s *stage.Stage) {
		a, b := s.Actor(), s.Actor()
		for _, name := range []string{
			"a", "orders:42", "with space", " ", "täg", "🔒", "日本語", "{a}", "x{a}y", "*", "?[x]", `back\slash`, `"quoted"`, "%s", "-1",
			strings.Repeat("x", 512),
		} {
			hold := a.Lock(name)
			require.Equal(t, []string{name}, s.Keys(), "%q", name)
			_, err := b.Mutex(name).TryLock(b.Ctx)
			require.ErrorIs(t, err, redlatch.ErrNotAcquired, "%q", name)
			require.ErrorContains(t, err, fmt.Sprintf("%q", name))
			waits := b.Begin(b.Ctx, name).Asked(2)
			s.Unlock(hold)
			next := waits.Got()
			require.Greater(t, next.Fence(), hold.Fence())
			s.Unlock(next)
			require.Empty(t, s.Keys(), "%q", name)
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
		{with(redlatch.WithRenewInterval(0)), what, time.Duration(0)},
		{with(redlatch.WithRenewInterval(10)), what, time.Duration(10)}, // the caller meant milliseconds
		{with(redlatch.WithRenewInterval(10*time.Millisecond - 1)), what, 10*time.Millisecond - 1},
		{with(redlatch.WithRenewInterval(-time.Second)), what, -time.Second},
		{with(redlatch.WithRenewInterval(math.MinInt64)), what, time.Duration(math.MinInt64)},
		{with(redlatch.WithRenewInterval(15*time.Second + time.Nanosecond)), what, 15*time.Second + time.Nanosecond},
		{with(redlatch.WithLease(time.Second), redlatch.WithRenewInterval(time.Second)), what, time.Second},
		{with(redlatch.WithPollInterval(0)), "poll bound", time.Duration(0)},
		{with(redlatch.WithPollInterval(-1)), "poll bound", time.Duration(-1)},
		{with(redlatch.WithPollInterval(2000)), "poll bound", time.Duration(2000)},
		{with(redlatch.WithPollInterval(10*time.Millisecond - 1)), "poll bound", 10*time.Millisecond - 1},
		{with(redlatch.WithMaxHold(3600)), "maximum hold time", time.Duration(3600)},
		{with(redlatch.WithProgressTimeout(60)), "progress timeout", time.Duration(60)},
		{with(redlatch.WithProgressTimeout(-1)), "progress timeout", time.Duration(-1)},
		{with(redlatch.WithSelfDeadlockWarning(60)), "self-deadlock warning", time.Duration(60)},
		{with(redlatch.WithLocalHandoffTime(-1)), "local handoff time", time.Duration(-1)},
		{with(redlatch.WithMaxHold(-1)), "maximum hold time", time.Duration(-1)},
		{with(redlatch.WithSelfDeadlockWarning(-1)), "self-deadlock warning", time.Duration(-1)},
		{with(redlatch.WithReplicas(-1, time.Second)), "number of replicas", -1},
		{with(redlatch.WithReplicas(1, 0)), "replica timeout", time.Duration(0)}, // which Redis takes for no limit
		{with(redlatch.WithReplicas(1, 100)), "replica timeout", time.Duration(100)},
		{with(redlatch.WithReplicas(1, time.Second+time.Microsecond)), "replica timeout", time.Second + time.Microsecond},
		{with(redlatch.WithReplicas(1, time.Second), redlatch.WithLease(time.Second)), "replica timeout", time.Second},
		{with(redlatch.WithReplicas(1, 5*time.Second)), "replica timeout", 5 * time.Second}, // go-redis would not read the answer
	} {
		var forClient []redlatch.Option
		for _, o := range c.options {
			forClient = append(forClient, o)
		}
		locks, err := redlatch.New(stage.Unused(t), forClient...)
		require.Nil(t, locks)
		require.Error(t, err, c.what)
		stage.RequireBad(t, err, c.what, c.value)

		locks, err = redlatch.New(stage.Unused(t))
		require.NoError(t, err)
		_, err = locks.Mutex("door", c.options...).Lock(t.Context())
		stage.RequireBad(t, err, c.what, c.value)
		require.NoError(t, locks.Close(t.Context()))
	}
}

func with(options ...redlatch.LockOption) []redlatch.LockOption { return options }

func TestSettingsAtTheirBoundsAreAccepted(t *testing.T) {
	t.Parallel()
	for _, options := range [][]redlatch.Option{
		{redlatch.WithLease(100 * time.Millisecond)},
		{redlatch.WithLease(365 * 24 * time.Hour)},
		{redlatch.WithLease(time.Second), redlatch.WithRenewInterval(500 * time.Millisecond)},
		{redlatch.WithRenewInterval(10 * time.Millisecond), redlatch.WithPollInterval(10 * time.Millisecond), redlatch.WithMaxHold(100 * time.Millisecond)},
		{redlatch.WithSelfDeadlockWarning(10 * time.Millisecond), redlatch.WithLocalHandoffTime(0), redlatch.WithMaxHold(0), redlatch.WithProgressTimeout(0), redlatch.WithSelfDeadlockWarning(0)},
		{redlatch.WithProgressTimeout(100 * time.Millisecond)},
		{redlatch.WithDescription(""), redlatch.WithFenceRetention(0), redlatch.WithPrefix("")},
		{redlatch.WithFenceRetention(time.Second)}, {redlatch.WithFenceRetention(time.Second + time.Millisecond)},
		{redlatch.WithReplicas(0, -time.Second)}, {redlatch.WithReplicas(math.MaxInt, time.Millisecond)},
		{redlatch.WithLease(time.Second), redlatch.WithReplicas(1, 500*time.Millisecond)},
		{redlatch.WithDescription(strings.Repeat("x", 256))},
		{redlatch.WithDescription("Büro 3, 日本語 🔒"), redlatch.WithPrefix("Büro 🔒:")},
		{redlatch.WithPrefix(strings.Repeat("x", 511))}, {redlatch.WithPrefix("{svc}:")}, {redlatch.WithPrefix("redlatch:")},
	} {
		_, err := redlatch.New(stage.Unused(t), options...)
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
		stage.RequireOnly(t, redlatch.ErrConfig, err, name)
		require.ErrorContains(t, err, "redis client", name)
		require.NotEmpty(t, err.Error(), name)
	}
	for what, option := range map[string]redlatch.Option{
		"logger":          redlatch.WithLogger(nil),
		"description":     redlatch.WithDescription(strings.Repeat("x", 257)),
		"fence retention": redlatch.WithFenceRetention(-time.Millisecond),
	} {
		_, err := redlatch.New(stage.Unused(t), option)
		stage.RequireOnly(t, redlatch.ErrConfig, err, what)
		require.ErrorContains(t, err, what)
	}
	for _, brief := range []time.Duration{1, time.Microsecond, 999 * time.Millisecond, time.Second + 1, -time.Second} {
		_, err := redlatch.New(stage.Unused(t), redlatch.WithFenceRetention(brief))
		stage.RequireBad(t, err, "fence retention", brief)
	}
}

func TestBadPrefixesAndDescriptionsAreRefusedByNew(t *testing.T) {
	t.Parallel()
	for _, text := range unseen {
		_, err := redlatch.New(stage.Unused(t), redlatch.WithPrefix(text))
		stage.RequireBad(t, err, "prefix", text)
		_, err = redlatch.New(stage.Unused(t), redlatch.WithDescription(text))
		stage.RequireBad(t, err, "description", text)
	}
	for _, prefix := range []string{
		strings.Repeat("x", 512), "{", "}", "{}", "{svc:", "svc}:", "{a}{b}", "redisson_lock_token:", "redlatch:queue:", "redlatch:permits:{a",
	} {
		_, err := redlatch.New(stage.Unused(t), redlatch.WithPrefix(prefix))
		stage.RequireBad(t, err, "prefix", prefix)
	}
}

// Errors show text of others as one line of visible characters.
func TestForeignDescriptionsAreQuotedInErrors(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		a := s.Actor()
		const holder = "5f0c6f0e-6b8e-4d0a-9a38-0a3d1b8f3a11:7"
		for _, text := range append([]string{strings.Repeat("long", 1000)}, unseen...) {
			require.NoError(s, s.Admin.Del(s.Context(), "door").Err())
			require.NoError(s, s.Admin.HSet(s.Context(), "door", holder, 1, "redlatch:about", text).Err())
			for _, try := range []func() error{
				func() error { _, err := a.Mutex("door").TryLock(a.Ctx); return err },
				func() error { _, err := a.FairMutex("door").TryLock(a.Ctx); return err },
			} {
				err := try()
				stage.RequireOnly(s, redlatch.ErrNotAcquired, err)
				stage.RequireShowable(s, err)
				require.ErrorContains(s, err, holder)
				require.Less(s, len(err.Error()), 500)
				var busy *redlatch.NotAcquiredError
				require.ErrorAs(s, err, &busy)
				require.Equal(s, text, busy.Description, "the field is what is stored")
			}
		}
	})
}

// ForceRelease does not delete a hash that is no lock, even if it counts something.
func TestForceReleaseSparesWhatIsNoLock(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		a := s.Actor()
		for _, fields := range [][]any{
			{"visits", 5, "errors", 7}, {"visits", 5}, {"product:55", 2}, {"page:1", 3, "page:2", 4}, {"12:30", 1}, {"2026-11-22:7", 1},
			{"a:1", 1, "mode", "write"}, {"redlatch:about", "x", "product:55", 2},
			{"5f0c6f0e-6b8e-4d0a-9a38-0a3d1b8f3a11", 1}, {"5f0c6f0e-6b8e-4d0a-9a38-0a3d1b8f3a11:7:write", 1},
		} {
			require.NoError(s, s.Admin.Del(s.Context(), "door").Err())
			require.NoError(s, s.Admin.HSet(s.Context(), "door", fields...).Err())
			before := s.Admin.HGetAll(s.Context(), "door").Val()
			for _, expected := range []string{"", fmt.Sprint(fields[0])} {
				_, err := a.Mutex("door").ForceRelease(a.Ctx, expected)
				stage.RequireOnly(s, redlatch.ErrRefused, err, "%v", fields)
				_, err = a.FairMutex("door").ForceRelease(a.Ctx, expected)
				stage.RequireOnly(s, redlatch.ErrRefused, err, "%v", fields)
			}
			require.Equal(s, before, s.Admin.HGetAll(s.Context(), "door").Val())
		}
		// ForceRelease may end a lock of Redisson.
		const javas = "5f0c6f0e-6b8e-4d0a-9a38-0a3d1b8f3a11:-7"
		require.NoError(s, s.Admin.Del(s.Context(), "door").Err())
		require.NoError(s, s.Admin.HSet(s.Context(), "door", javas, 2).Err())
		had, err := a.Mutex("door").ForceRelease(a.Ctx, "")
		require.NoError(s, err)
		require.Equal(s, javas, had)
		require.Empty(s, s.Keys())
	})
}

// If a server refuses a command, the error says why, once, and nothing is written.
func TestWhatRedisRefusesChangesNothing(t *testing.T) {
	t.Parallel()
	const lock, fence = "door", "redisson_lock_token:{door}"
	set := func(args ...any) func(*stage.Stage) {
		return func(s *stage.Stage) { require.NoError(s, s.Admin.Do(context.Background(), args...).Err()) }
	}
	for _, c := range []struct {
		name, says string
		prepare    func(s *stage.Stage)
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
			stage.OnServer(t, func(s *stage.Stage) {
				a := s.Actor()
				c.prepare(s)
				before := s.Dump()
				delete(before, c.moves)
				start := a.Scripts.Load()
				for use, f := range map[string]func() error{
					"Lock":    func() error { _, err := a.Mutex("door").Lock(a.Ctx); return err }, // returns, although ctx has no end
					"TryLock": func() error { _, err := a.Mutex("door").TryLock(a.Ctx); return err },
					"Do":      func() error { return a.Mutex("door").Do(a.Ctx, func(context.Context) error { panic("runs") }) },
				} {
					if c.name == "a password" {
						a.Reconnects() // Redis ends the connection with this answer
					}
					err := f()
					stage.RequireOnly(t, redlatch.ErrRefused, err, use)
					require.ErrorContains(t, err, `"door"`, use)
					var op *redlatch.OpError
					require.ErrorAs(t, err, &op, use)
					require.Equal(t, "lock", op.Op)
					require.Regexp(t, c.says, err.Error(), use)
				}
				after := s.Dump()
				delete(after, c.moves)
				require.Equal(t, before, after)
				require.LessOrEqual(t, a.Scripts.Load()-start, int64(4), "no use of asking again")
			})
		})
	}
}

// A server without free memory grants no new lock. Locks that are held go on and end.
func TestHeldLocksSurviveAServerOutOfMemory(t *testing.T) {
	t.Parallel()
	stage.OnServer(t, func(s *stage.Stage) {
		a := s.Actor(redlatch.WithLease(300 * time.Millisecond))
		chain := redlatch.WithOwner(a.Ctx)
		h, err := a.Mutex("door").Lock(chain)
		require.NoError(t, err)
		require.NoError(t, s.Admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
		_, err = a.Mutex("other").TryLock(a.Ctx)
		stage.RequireOnly(t, redlatch.ErrRefused, err)

		trusted := h.TrustedUntil()
		s.Await("it is renewed", func() bool { return h.TrustedUntil().After(trusted) })
		inner, err := a.Mutex("door").Lock(chain)
		require.NoError(t, err, "re-entry")
		s.Unlock(inner)
		info, err := a.Mutex("door").Inspect(a.Ctx)
		require.NoError(t, err)
		require.Equal(t, 1, info.Holds)
		s.Unlock(h)
		require.Empty(t, s.Keys())
	})
}

// Each row is one cause. Its error matches its sentinel, and no other.
func TestEachCauseMatchesItsSentinel(t *testing.T) {
	t.Parallel()
	type cause struct {
		name  string
		want  error
		also  error // visible beside it
		cause func(s *stage.Stage, a, b *stage.Actor) error
	}
	soon := func(a *stage.Actor) (context.Context, context.CancelFunc) {
		return context.WithTimeout(a.Ctx, 3*time.Second)
	}
	for _, c := range []cause{
		{"a try at a held lock", redlatch.ErrNotAcquired, nil, func(s *stage.Stage, a, b *stage.Actor) error {
			defer s.Unlock(b.Lock("door"))
			_, err := a.Mutex("door").TryLock(a.Ctx)
			return err
		}},
		{"a wait that ended by its deadline", redlatch.ErrNotAcquired, context.DeadlineExceeded, func(s *stage.Stage, a, b *stage.Actor) error {
			defer s.Unlock(b.Lock("door"))
			ctx, cancel := soon(a)
			defer cancel()
			_, err := a.Mutex("door").Lock(ctx)
			return err
		}},
		{"a context that had ended before", context.Canceled, context.Canceled, func(_ *stage.Stage, a, _ *stage.Actor) error {
			ctx, cancel := context.WithCancel(a.Ctx)
			cancel()
			_, err := a.Mutex("door").Lock(ctx)
			return err
		}},
		{"a forced release of another than expected", redlatch.ErrNotAcquired, nil, func(s *stage.Stage, a, b *stage.Actor) error {
			defer s.Unlock(b.Lock("door"))
			_, err := a.Mutex("door").ForceRelease(a.Ctx, "someone:1")
			return err
		}},
		{"an unlock of what is gone", redlatch.ErrLost, nil, func(s *stage.Stage, a, _ *stage.Actor) error {
			h := a.Lock("door")
			s.Sim.FlushAll()
			return h.Unlock(a.Ctx)
		}},
		{"a re-entry of what is gone", redlatch.ErrLost, nil, func(s *stage.Stage, a, _ *stage.Actor) error {
			h := a.Lock("door")
			s.Sim.FlushAll()
			_, err := a.Mutex("door").Lock(h.Context())
			return err
		}},
		{"an unlock after a forced release", redlatch.ErrLost, nil, func(s *stage.Stage, a, b *stage.Actor) error {
			h := a.Lock("door")
			_, err := b.Mutex("door").ForceRelease(b.Ctx, "")
			require.NoError(s, err)
			return h.Unlock(a.Ctx)
		}},
		{"a second unlock", redlatch.ErrNotHeld, nil, func(s *stage.Stage, a, _ *stage.Actor) error {
			h := a.Lock("door")
			s.Unlock(h)
			return h.Unlock(a.Ctx)
		}},
		{"an unlock of nothing", redlatch.ErrNotHeld, nil, func(_ *stage.Stage, a, b *stage.Actor) error {
			hold, _ := a.Mutex("").TryLock(a.Ctx)
			return hold.Unlock(a.Ctx)
		}},
		{"a question without an answer", redlatch.ErrIndeterminate, context.DeadlineExceeded, func(_ *stage.Stage, a, _ *stage.Actor) error {
			a.Net.Deaf.Store(true)
			a.Net.BlackHole(func(*stage.Wire) bool { return true })
			ctx, cancel := soon(a)
			defer cancel()
			_, err := a.Mutex("door").Lock(ctx)
			return err
		}},
		{"a release without an answer", redlatch.ErrIndeterminate, context.DeadlineExceeded, func(_ *stage.Stage, a, _ *stage.Actor) error {
			h := a.Lock("door")
			a.Net.Deaf.Store(true)
			a.Net.BlackHole(func(*stage.Wire) bool { return true })
			ctx, cancel := soon(a)
			defer cancel()
			return h.Unlock(ctx)
		}},
		{"nobody there", redlatch.ErrUnavailable, context.DeadlineExceeded, func(_ *stage.Stage, a, _ *stage.Actor) error {
			a.Die()
			ctx, cancel := context.WithTimeout(a.Ctx, time.Minute)
			defer cancel()
			_, err := a.Mutex("door").Lock(ctx)
			return err
		}},
		{"a server that loads", redlatch.ErrUnavailable, context.DeadlineExceeded, func(s *stage.Stage, a, _ *stage.Actor) error {
			s.Sim.SetError("LOADING Redis is loading the dataset in memory")
			defer s.Sim.SetError("")
			ctx, cancel := context.WithTimeout(a.Ctx, time.Minute)
			defer cancel()
			_, err := a.Mutex("door").Lock(ctx)
			return err
		}},
		{"a server that does not do it", redlatch.ErrRefused, nil, func(s *stage.Stage, a, _ *stage.Actor) error {
			require.NoError(s, s.Sim.Set("door", "mine"))
			_, err := a.Mutex("door").Lock(a.Ctx)
			return err
		}},
		{"a closed client", redlatch.ErrClosed, nil, func(s *stage.Stage, a, _ *stage.Actor) error {
			require.NoError(s, a.Close(a.Ctx))
			_, err := a.Mutex("door").Lock(a.Ctx)
			return err
		}},
		{"an unlock that Close was faster than", redlatch.ErrClosed, nil, func(s *stage.Stage, a, _ *stage.Actor) error {
			h := a.Lock("door")
			require.NoError(s, a.Close(a.Ctx))
			return h.Unlock(a.Ctx)
		}},
		{"a bad name", redlatch.ErrConfig, nil, func(_ *stage.Stage, a, _ *stage.Actor) error {
			_, err := a.Mutex("{").Lock(a.Ctx)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			stage.InVirtualTime(t, func(s *stage.Stage) {
				a, b := s.Actor(redlatch.WithLease(30*time.Second)), s.Actor()
				err := c.cause(s, a, b)
				stage.RequireOnly(t, c.want, err)
				if c.also != nil {
					require.ErrorIs(t, err, c.also)
				}
				for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
					if c.want != redlatch.ErrIndeterminate { // the error of go-redis for a timeout may also be visible
						require.Equal(t, end == c.also, errors.Is(err, end), "%v: %v", end, err) //nolint:errorlint // the very value
					}
				}
				require.Contains(t, err.Error(), "redlatch: ")
			})
		})
	}
}

// Errors of a client do not show its password.
func TestErrorsDoNotShowCredentials(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t, func(o *redis.Options) {
		o.Username, o.Password = "nobody", "very-secret"
		o.MaxRetries = -1
		o.DialerRetries = 1
	})
	log := &stage.Logbook{}
	locks, err := redlatch.New(rdb, redlatch.WithLogger(slog.New(log)))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), stage.Guard)
	defer cancel()
	_, err = locks.Mutex("door").Lock(ctx)
	stage.RequireOnly(t, redlatch.ErrRefused, err)
	require.ErrorContains(t, err, "WRONGPASS")
	require.NotContains(t, err.Error(), "very-secret")
	require.NoError(t, locks.Close(ctx))
}
