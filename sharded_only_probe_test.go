package redlatch_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
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

// The client asks which channels it needs, and gets no answer at first. The waiter that is there
// already learns it all the same.
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

// countsBeats counts the heartbeats of waiters of semaphores.
type countsBeats struct{ n atomic.Int64 }

func (l *countsBeats) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *countsBeats) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if stage.ScriptOf(cmd) == "semaphore/beat" {
			l.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (l *countsBeats) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(l, next)
}

// Each waiter needs a channel of its own there. When a channel is confirmed, only its own waiter
// asks, and not those of all other names.
func TestAFreshNameInAClusterWithShardedChannelsOnlyDisturbsNoOtherWaiter(t *testing.T) {
	t.Parallel()
	const all = 30
	s := startShardedOnly(t, 1)
	rdb, beats := s.Client(t), &countsBeats{}
	rdb.AddHook(beats)
	holder, waiter := stage.LocksOn(t, s.Client(t), onlyMessages...), stage.LocksOn(t, rdb, onlyMessages...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range all {
		name := redistest.Name(t)
		held, err := lockKinds["semaphore"](t.Context(), holder, name)
		require.NoError(t, err)
		defer func() { require.NoError(t, held.unlock(context.WithoutCancel(ctx))) }()
		go func() { _, _ = lockKinds["semaphore"](ctx, waiter, name) }()
		s.listened("redlatch:client:*:{" + name + "}")
	}
	require.LessOrEqual(t, beats.n.Load(), int64(3*all))
}
