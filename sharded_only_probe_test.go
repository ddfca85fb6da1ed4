package redlatch_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lua"
)

// losesEchoes makes the first echoes of a client fail, as a broken connection does.
type losesEchoes struct{ left atomic.Int32 }

func (l *losesEchoes) loses(cmd redis.Cmder) bool {
	var args []string
	for _, arg := range cmd.Args() {
		args = append(args, fmt.Sprint(arg))
	}
	return lua.ScriptName(args) == "pubsub/echo" && l.left.Add(-1) >= 0
}

func (l *losesEchoes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *losesEchoes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if l.loses(cmd) {
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return next(ctx, cmd)
	}
}

func (l *losesEchoes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The client asks which channels it needs, and gets no answer at first. The waiter that is there already learns
// it all the same.
func TestAWaiterInAClusterWithShardedChannelsOnlyOutlastsALostProbe(t *testing.T) {
	t.Parallel()
	s := startShardedOnly(t, 1)
	rdb := s.Client(t)
	lost := &losesEchoes{}
	lost.left.Store(2)
	rdb.AddHook(lost)
	holder, waiter := stage.LocksOn(t, s.Client(t), onlyMessages...), stage.LocksOn(t, rdb, onlyMessages...)
	held, err := lockKinds["semaphore"](t.Context(), holder, "door")
	require.NoError(t, err)
	got := make(chan error, 1)
	go func() { _, err := lockKinds["semaphore"](t.Context(), waiter, "door"); got <- err }()
	s.listened("redlatch:client:*:{door}")
	require.Negative(t, lost.left.Load(), "some were lost")
	require.NoError(t, held.unlock(t.Context()))
	require.NoError(t, stage.Within(t, got, "a message wakes the waiter"))
}
