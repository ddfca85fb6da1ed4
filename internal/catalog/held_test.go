package catalog

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lua"
)

// failing is a hook that lets scripts fail before they are sent.
type failing struct{ fails func(script string) bool }

func (failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := f.of(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (f failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := f.of(cmd); err != nil {
				for _, cmd := range cmds {
					cmd.SetErr(err)
				}
				return err
			}
		}
		return next(ctx, cmds)
	}
}

func (f failing) of(cmd redis.Cmder) error {
	args := cmd.Args()
	if len(args) < 2 {
		return nil
	}
	verb, isVerb := args[0].(string)
	text, isText := args[1].(string)
	if isVerb && isText && f.fails(lua.ScriptName([]string{verb, text})) {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// A list finds a lock for as long as somebody holds it, or Redis keeps it, and for a while after
// that. Two of three commands that keep its fence may fail.
func TestAListFindsALockForAsLongAsRedisHasIt(t *testing.T) {
	const retention = 20 * time.Minute
	tests := []struct {
		name    string
		options []redlatch.LockOption
		end     func(ctx context.Context, hold *redlatch.Hold) error // a minute after the grant; nil: never
		found   time.Duration                                        // this long
		ends    bool                                                 // nobody finds it eight hours later
	}{
		{name: "held", options: []redlatch.LockOption{redlatch.WithLease(4 * time.Minute)}, found: 24 * time.Hour},
		{name: "held for a long lease", options: []redlatch.LockOption{redlatch.WithLease(5 * time.Hour)}, found: 24 * time.Hour},
		{name: "held and not renewed", options: []redlatch.LockOption{redlatch.WithLease(5 * time.Hour), redlatch.WithoutRenewal()}, found: 5 * time.Hour, ends: true},
		{name: "kept", found: 24 * time.Hour, ends: true, end: func(ctx context.Context, hold *redlatch.Hold) error { return hold.UnlockAfter(ctx, 24*time.Hour) }},
		{name: "exported", found: 24 * time.Hour, ends: true, end: func(ctx context.Context, hold *redlatch.Hold) error {
			_, err := hold.Export(ctx, 24*time.Hour)
			return err
		}},
		{name: "unlocked", found: retention, ends: true, end: func(ctx context.Context, hold *redlatch.Hold) error { return hold.Unlock(ctx) }},
	}
	kinds := map[string]func(*redlatch.Client, string, ...redlatch.LockOption) redlatch.Locker{
		"mutex": func(c *redlatch.Client, name string, o ...redlatch.LockOption) redlatch.Locker {
			return c.Mutex(name, o...)
		},
		"fair mutex": func(c *redlatch.Client, name string, o ...redlatch.LockOption) redlatch.Locker {
			return c.FairMutex(name, o...)
		},
	}
	for _, test := range tests {
		for kind, lock := range kinds {
			t.Run(test.name+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := redistest.Bubble(t)
					rdb := server.Client()
					for _, text := range lua.ScriptSources() {
						require.NoError(t, rdb.ScriptLoad(t.Context(), text).Err())
					}
					sent := 0
					rdb.AddHook(failing{func(script string) bool {
						if script == "mutex/keep_fences" {
							sent++
						}
						return script == "mutex/keep_fences" && test.end == nil && sent%3 != 0
					}})
					c, locks := newCatalog(t, rdb, redlatch.WithFenceRetention(retention))
					hold := acquire(t, lock(locks, "door", test.options...))
					time.Sleep(time.Minute)
					if test.end != nil {
						require.NoError(t, test.end(t.Context(), hold))
					}
					for began := time.Now(); time.Since(began) < test.found-20*time.Minute; time.Sleep(17 * time.Minute) {
						require.Equal(t, []string{"door"}, listed(t, c), "after %v", time.Since(began))
					}
					time.Sleep(8 * time.Hour)
					if test.ends {
						require.Empty(t, listed(t, c))
					}
				})
			})
		}
	}
}

// Re-entries prove the lease too. They do not keep the renewals from keeping the fence.
func TestAListFindsALockThatIsReenteredOften(t *testing.T) {
	for every, retention := range map[time.Duration]time.Duration{200 * time.Millisecond: 2 * time.Minute, 9900 * time.Millisecond: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c, locks := newCatalog(t, redistest.Bubble(t).Client(), redlatch.WithFenceRetention(retention))
			time.Sleep(10 * time.Minute)
			m := locks.Mutex("door")
			hold := acquire(t, m)
			for began := time.Now(); time.Since(began) < 10*time.Minute; time.Sleep(every) {
				again, err := m.Lock(hold.Context())
				require.NoError(t, err)
				require.NoError(t, again.Unlock(t.Context()))
			}
			info, err := m.Inspect(t.Context())
			require.NoError(t, err)
			require.Equal(t, hold.Fence(), info.Fence, "it was lost, and a re-entry made another")
			for range 4 {
				time.Sleep(time.Hour)
				require.Equal(t, []string{"door"}, listed(t, c))
			}
			require.NoError(t, hold.Unlock(t.Context()))
		})
	}
}

func listed(t *testing.T, c *Catalog) (all []string) {
	t.Helper()
	for name := range list(t, c, Query{}) {
		all = append(all, name)
	}
	return all
}
