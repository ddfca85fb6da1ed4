package lua_test

import (
	"context"
	"encoding"
	"errors"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lua"
)

// onWire is a Redis that shows the command as go-redis is about to write it.
type onWire func(cmd redis.Cmder)

func (f onWire) Process(_ context.Context, cmd redis.Cmder) error {
	f(cmd)
	return errors.New("no reply")
}

// abandoner is what a command is for callers that stop waiting for it.
type abandoner interface{ Abandon() (wasWritten bool) }

// sent returns the arguments of a command as go-redis encodes them.
func sent(t *testing.T, cmd redis.Cmder) (args []any) {
	for _, a := range cmd.Args() {
		if m, ok := a.(encoding.BinaryMarshaler); ok {
			text, err := m.MarshalBinary()
			require.NoError(t, err)
			a = string(text)
		}
		args = append(args, a)
	}
	return args
}

// The error of a caller that left without a connection says that nothing was sent. A connection
// that comes later must not make that untrue, even if go-redis has looked at the arguments before.
func TestACommandThatWasLeftIsRefused(t *testing.T) {
	_, err := lua.Release(t.Context(), onWire(func(cmd redis.Cmder) {
		require.Equal(t, "door", cmd.Args()[3], "go-redis looks for the server")
		require.False(t, cmd.(abandoner).Abandon(), "not written yet")
		require.False(t, cmd.(abandoner).Abandon(), "nor will it be")
		require.Equal(t, "-1", sent(t, cmd)[2], "keys")
	}), lua.ReleaseParams{LockKey: "door", Channel: "c", Acquisition: "a:1"})
	require.Error(t, err)
}

func TestNoServerRunsACommandThatWasLeft(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		rdb := b.Client(t)
		_, err := lua.Release(t.Context(), rdb, lua.ReleaseParams{LockKey: "door", Channel: "c", Acquisition: "a:1"})
		require.NoError(t, err, "the server has the script now")
		_, err = lua.Release(t.Context(), onWire(func(cmd redis.Cmder) {
			require.False(t, cmd.(abandoner).Abandon())
			require.ErrorContains(t, rdb.Process(t.Context(), cmd), "Number of keys can't be negative")
		}), lua.ReleaseParams{LockKey: "door", Channel: "c", Acquisition: "a:1"})
		require.Error(t, err)
	})
}

// A cluster client looks at a command for its route. It may then wait for a connection for longer
// than the caller does.
func TestACommandThatWaitsForAConnectionToAClusterWasNotWritten(t *testing.T) {
	dialing, dial := make(chan struct{}, 1), make(chan struct{})
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
		},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			select {
			case dialing <- struct{}{}:
			default:
			}
			<-dial
			return nil, errors.New("refused")
		},
	})
	defer func() { require.NoError(t, rdb.Close()) }()
	_, err := lua.Release(t.Context(), onWire(func(cmd redis.Cmder) {
		ended := make(chan error, 1)
		go func() { ended <- rdb.Process(t.Context(), cmd) }()
		<-dialing
		require.False(t, cmd.(abandoner).Abandon())
		close(dial)
		require.Error(t, <-ended)
	}), lua.ReleaseParams{LockKey: "door", Channel: "c", Acquisition: "a:1"})
	require.Error(t, err)
}

// Another client than go-redis may encode the arguments in its own way.
func TestACommandThatWasPrintedMayHaveBeenWritten(t *testing.T) {
	_, err := lua.Release(t.Context(), onWire(func(cmd redis.Cmder) {
		require.Contains(t, cmd.String(), " 2 door ")
		require.True(t, cmd.(abandoner).Abandon())
	}), lua.ReleaseParams{LockKey: "door", Channel: "c", Acquisition: "a:1"})
	require.Error(t, err)
}

func TestCommandThatWasWrittenWasWritten(t *testing.T) {
	_, err := lua.Release(t.Context(), onWire(func(cmd redis.Cmder) {
		require.Equal(t, "2", sent(t, cmd)[2])
		require.True(t, cmd.(abandoner).Abandon())
		require.Equal(t, "2", sent(t, cmd)[2], "go-redis may send it to another server")
	}), lua.ReleaseParams{LockKey: "door", Channel: "c", Acquisition: "a:1"})
	require.Error(t, err)
}

func TestAWriteForgetsTheErrorOfAnEarlierCopy(t *testing.T) {
	_, err := lua.Release(t.Context(), onWire(func(cmd redis.Cmder) {
		cmd.SetErr(errors.New("MOVED 1 127.0.0.1:1"))
		sent(t, cmd)
		require.NoError(t, cmd.Err())
	}), lua.ReleaseParams{LockKey: "door", Channel: "c", Acquisition: "a:1"})
	require.Error(t, err)
}
