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

	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lua"
)

// answers is a client that answers every command immediately.
type answers struct{}

func (answers) Process(context.Context, redis.Cmder) error { return nil }

// Closing ends the workers of every master immediately, and not when they have been idle for a while.
func TestClosingEndsTheWorkersOfEachMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := sender.Config{Redis: answers{}}
		s := servers{one: newServer(cfg), config: cfg}
		workers := func() int {
			synctest.Wait()
			all := make([]byte, 1<<20)
			return strings.Count(string(all[:runtime.Stack(all, true)]), "sender.(*worker).work(")
		}
		for _, to := range []*server{s.one, s.of("a"), s.of("b"), s.of("a")} {
			a := to.sender.Attempt(time.Second, nil, true)
			require.NoError(t, a.Process(t.Context(), redis.NewStatusCmd(t.Context(), "ping")))
			a.End()
			synctest.Wait() // its worker is idle again, and takes the next command
		}
		require.Equal(t, 3, workers(), "one for each, and one for all others")
		s.close()
		require.Zero(t, workers())
	})
}

// A lone caller sends by itself to each master of a cluster that answers soon, whatever others do.
func TestALoneCallerSendsByItselfToEachMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		half := []SlotRange{{First: 0, Last: 8191, Master: "a"}, {First: 8192, Last: 16383, Master: "b"}}
		s := fresh(t, Config{
			Redis: answers{}, Direct: true, ClusterPipeline: func() redis.Pipeliner { return nil },
			ClusterSlots: func(context.Context) ([]SlotRange, error) { return half, nil },
		})
		s.topology.nodes.learn(t.Context())
		names := map[string]string{"a": "bar", "b": "foo"} // slots 5061 and 12182
		direct := func(master string) bool {
			a := s.attempt(t.Context(), names[master], time.Second)
			defer a.End()
			require.NoError(t, a.Process(t.Context(), redis.NewStatusCmd(t.Context(), "ping")))
			synctest.Wait()
			return a.IsDirect()
		}
		for master := range names {
			require.False(t, direct(master), "nobody knows yet how soon %s answers", master)
			require.True(t, direct(master))
		}
	})
}

// Each master of a cluster has its own guess of its clock. The void-after time of a command is of the clock of the
// master that gets it.
func TestEachMasterHasAClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		half := []SlotRange{{First: 0, Last: 8191, Master: "a"}, {First: 8192, Last: 16383, Master: "b"}}
		s := fresh(t, Config{
			Redis: answers{}, ClusterPipeline: func() redis.Pipeliner { return nil },
			ClusterSlots: func(context.Context) ([]SlotRange, error) { return half, nil },
		})
		s.topology.nodes.learn(t.Context())
		clocks := map[string]lua.Time{"bar": 1_000_000_000_000, "foo": 2_000_000_000_000} // slots 5061 and 12182
		for name, now := range clocks {
			require.NoError(t, s.CheckReply(name, lua.Granted, now))
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

// A client may learn the masters while the first reply is on its way. That reply tells the time for the other masters
// too, so that only the first command of a client costs a second round trip.
func TestTheFirstReplyTellsTheTimeForAllMasters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		half := []SlotRange{{First: 0, Last: 8191, Master: "a"}, {First: 8192, Last: 16383, Master: "b"}}
		s := fresh(t, Config{
			Redis: answers{}, ClusterPipeline: func() redis.Pipeliner { return nil },
			ClusterSlots: func(context.Context) ([]SlotRange, error) { return half, nil },
		})
		s.topology.nodes.learn(t.Context())
		const now = lua.Time(1_000_000_000_000)
		require.ErrorIs(t, s.CheckReply("bar", lua.Void, now), errVoid)
		for _, name := range []string{"bar", "foo"} { // slots 5061 and 12182
			require.Equal(t, now, s.Now(name))
		}
	})
}
