package lua_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

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

// Whoever left without a connection was told that nothing was sent: a connection
// that comes later must not make that untrue.
func TestCommandThatWasLeftIsNotWritten(t *testing.T) {
	_, err := lua.Release(t.Context(), onWire(func(cmd redis.Cmder) {
		require.False(t, cmd.(abandoner).Abandon(), "not written yet")
		require.False(t, cmd.(abandoner).Abandon(), "nor will it be")
		require.Equal(t, []any{"ping"}, cmd.Args())
	}), lua.ReleaseParams{LockKey: "door", Channel: "c", Acquisition: "a:1"})
	require.Error(t, err)
}

func TestCommandThatWasWrittenWasWritten(t *testing.T) {
	_, err := lua.Release(t.Context(), onWire(func(cmd redis.Cmder) {
		require.Equal(t, "evalsha", cmd.Args()[0])
		require.True(t, cmd.(abandoner).Abandon())
		require.Equal(t, "evalsha", cmd.Args()[0], "go-redis may ask twice")
	}), lua.ReleaseParams{LockKey: "door", Channel: "c", Acquisition: "a:1"})
	require.Error(t, err)
}
