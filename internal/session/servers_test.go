package session

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lua"
)

// answers is a client that answers every command immediately.
type answers struct{}

func (answers) Process(context.Context, redis.Cmder) error { return nil }

// onTwoMasters is a session that knows two masters with half of the slots each. The slots of bar
// and foo are 5061 and 12182.
func onTwoMasters(t *testing.T, cfg Config) *Session {
	half := []node.SlotRange{{First: 0, Last: 8191, Master: "a"}, {First: 8192, Last: 16383, Master: "b"}}
	cfg.ClusterPipeline = func() redis.Pipeliner { return nil }
	cfg.ClusterSlots = func(context.Context) ([]node.SlotRange, error) { return half, nil }
	s := fresh(t, cfg)
	s.FoundCluster()
	s.topology.nodes.learn(t.Context())
	return s
}

// Closing ends the workers of every master immediately, and not when they have been idle for a
// while.
func TestClosingEndsTheWorkersOfEachMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := sender.Config{Redis: answers{}}
		s := servers{fallback: newServer(cfg), config: cfg}
		workers := func() int {
			synctest.Wait()
			all := make([]byte, 1<<20)
			return strings.Count(string(all[:runtime.Stack(all, true)]), "sender.(*worker).work(")
		}
		for _, to := range []*server{s.fallback, s.forMaster("a"), s.forMaster("b"), s.forMaster("a")} {
			a := to.sender.Attempt(time.Second, nil, true)
			require.NoError(t, a.Process(t.Context(), redis.NewStatusCmd(t.Context(), "ping")))
			a.End()
			synctest.Wait() // its worker is idle again, and takes the next command
		}
		require.Equal(t, 3, workers(), "one for each, and one for all others")
		s.close()
		require.Zero(t, workers())
		a := s.forMaster("c").sender.Attempt(time.Second, nil, true)
		require.NoError(t, a.Process(t.Context(), redis.NewStatusCmd(t.Context(), "ping")))
		a.End()
		require.Zero(t, workers(), "of a master that a late command is for")
	})
}

// A lone caller sends by itself to each master of a cluster that answers soon, whatever others do.
func TestALoneCallerSendsByItselfToEachMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := onTwoMasters(t, Config{Redis: answers{}, Deployment: node.Deployment{Direct: true}})
		names := map[string]string{"a": "bar", "b": "foo"} // slots 5061 and 12182
		send := func(master string, c Operation) (direct bool) {
			a := s.attempt(t.Context(), s.serverFor(names[master]), time.Second, c)
			defer a.End()
			require.NoError(t, a.Process(t.Context(), redis.NewStatusCmd(t.Context(), "ping")))
			synctest.Wait()
			return a.Direct
		}
		direct := func(master string) bool { return send(master, Operation{RetryRefused: true}) }
		release := func(master string) bool { return send(master, Operation{NeverVoid: true}) }
		for master, name := range names {
			require.False(t, direct(master), "nobody knows yet how soon %s answers", master)
			require.False(t, direct(master), "its clock is not known")
			require.False(t, release(master), "nor whether it is new to the client")
			replies := func() { require.NoError(t, s.checkReply(name, lua.Granted, 1_000_000_000_000)) }
			replies()
			require.True(t, direct(master))
			time.Sleep(freshFor)
			require.False(t, direct(master), "it would be void if the clock were slow")
			require.True(t, release(master), "which is never void")
			replies()
			require.True(t, direct(master))
		}
	})
}

// While the client does not know the masters, several of them may answer, each with its own clock.
// So no caller sends by itself.
func TestACallerSendsNothingByItselfToAnUnknownMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for unknown, pipeline := range map[bool]sender.Pipeline{true: func() redis.Pipeliner { return nil }, false: nil} {
			s := fresh(t, Config{Redis: answers{}, Deployment: node.Deployment{Direct: true, ClusterPipeline: pipeline}})
			for range 3 {
				a := s.attempt(t.Context(), s.serverFor("foo"), time.Second, Operation{})
				require.NoError(t, a.Process(t.Context(), redis.NewStatusCmd(t.Context(), "ping")))
				a.End()
				synctest.Wait()
				require.NoError(t, s.checkReply("foo", lua.Granted, 1_000_000_000_000))
			}
			a := s.attempt(t.Context(), s.serverFor("foo"), time.Second, Operation{})
			a.End()
			require.Equal(t, !unknown, a.Direct)
		}
	})
}

// Each master of a cluster has its own guess of its clock. The void-after time of a command is of
// the clock of the master that gets it.
func TestEachMasterHasAClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := onTwoMasters(t, Config{Redis: answers{}})
		clocks := map[string]lua.Time{"bar": 1_000_000_000_000, "foo": 2_000_000_000_000} // slots 5061 and 12182
		for name, now := range clocks {
			require.NoError(t, s.checkReply(name, lua.Granted, now))
		}
		const valid = time.Minute
		for name, now := range clocks {
			require.Equal(t, now, s.Now(name))
			_, err := Do(t.Context(), s, Operation{Op: "lock", Name: name, AttemptTimeout: valid},
				func(_ context.Context, _ lua.Redis, voidAfter lua.Time) (int, error) {
					require.Equal(t, now.Add(valid), voidAfter)
					return 0, nil
				})
			require.NoError(t, err)
		}
	})
}

// A command to a master that has not replied yet is void, whatever the clocks of other masters say.
// Otherwise it could take effect after the client has given up its grant. That holds for a wrapped
// cluster client too.
func TestACommandToAMasterThatHasNotRepliedIsVoid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, pipeline := range []sender.Pipeline{func() redis.Pipeliner { return nil }, nil} {
			s := onTwoMasters(t, Config{Redis: answers{}})
			s.ClusterPipeline = pipeline
			const now = lua.Time(1_000_000_000_000)
			for _, ahead := range []time.Duration{0, 3 * time.Second} {
				require.NoError(t, s.checkReply("bar", lua.Granted, now.Add(ahead)))
			}
			_, err := Do(t.Context(), s, Operation{Op: "lock", Name: "foo", AttemptTimeout: time.Second},
				func(_ context.Context, _ lua.Redis, voidAfter lua.Time) (int, error) {
					require.Less(t, voidAfter, now)
					return 0, nil
				})
			require.NoError(t, err)
		}
	})
}

// The answers of one master say nothing about the way to another one.
func TestASlowMasterIsRememberedBesideAPromptOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := onTwoMasters(t, Config{Redis: answers{}})
		s.serverFor("foo").link.onLateAnswer(noScript{}, 2*time.Second)
		_, err := Do(t.Context(), s, Operation{Op: "lock", Name: "bar", AttemptTimeout: time.Second}, isAnswered)
		require.NoError(t, err)
		require.Equal(t, time.Second, s.AttemptTime("bar", time.Second))
		require.Equal(t, 4*time.Second, s.AttemptTime("foo", time.Second))
		require.True(t, s.serverFor("foo").link.needsEval.Load())
	})
}

// The guess of a server's clock is never early, although that clock runs slower than the client's
// by a thousandth. A command that is void then is void also by that clock.
func TestTheGuessOfAClockAllowsForDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const start = lua.Time(1_000_000_000_000)
		began := time.Now()
		slow := func() lua.Time { return start.Add(time.Since(began) - time.Since(began)/1000) }
		var c serverClock
		c.begin()
		c.set(start)
		for range 5 {
			time.Sleep(1000 * time.Second)
			require.LessOrEqual(t, c.now(), slow())
			require.GreaterOrEqual(t, c.now(), slow().Add(-time.Microsecond))
			voidAfter := c.now().Add(time.Minute)
			time.Sleep(c.until(voidAfter))
			require.Greater(t, slow(), voidAfter)
		}
	})
}
