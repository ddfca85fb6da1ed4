package stage

import (
	"context"
	"errors"
	"net"
	"testing"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
)

// IsClosed reports whether c is closed.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// StillHeld asserts that h is held, in every way that a test can see.
func StillHeld(t testing.TB, h *lock.Hold) {
	t.Helper()
	require.False(t, IsClosed(h.Lost()), "lost")
	require.True(t, h.Trusted(), "not trusted")
	require.NoError(t, h.Context().Err())
}

// Sentinels are all sentinels. Every error matches exactly one of them.
var Sentinels = map[string]error{
	"ErrNotAcquired": redlatch.ErrNotAcquired, "ErrNotReplicated": redlatch.ErrNotReplicated, "ErrLost": redlatch.ErrLost, "ErrNotHeld": redlatch.ErrNotHeld,
	"ErrIndeterminate": redlatch.ErrIndeterminate, "ErrUnavailable": redlatch.ErrUnavailable,
	"ErrRefused": redlatch.ErrRefused, "ErrClosed": redlatch.ErrClosed, "ErrConfig": redlatch.ErrConfig,
}

// RequireOnly asserts that err matches one sentinel and no other.
func RequireOnly(t testing.TB, want, err error, about ...any) {
	t.Helper()
	require.ErrorIs(t, err, want, about...)
	for name, other := range Sentinels {
		require.Equal(t, other == want, errors.Is(err, other), "%s: %v", name, err) //nolint:errorlint // the very value
	}
}

// RequireBad asserts a *ConfigError with the value.
func RequireBad(t testing.TB, err error, what string, value any) {
	t.Helper()
	RequireOnly(t, redlatch.ErrConfig, err)
	var bad *redlatch.ConfigError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, what, bad.Setting)
	require.Equal(t, value, bad.Value)
	require.NotEmpty(t, bad.Reason)
	require.Contains(t, err.Error(), what)
	require.Less(t, len(err.Error()), 600, "a bad value does not flood the log")
	RequireShowable(t, err)
}

// RequireShowable asserts that an error is one line without terminal control characters.
func RequireShowable(t testing.TB, err error) {
	t.Helper()
	for _, r := range err.Error() {
		require.True(t, unicode.IsPrint(r), "%q in %q", r, err)
		require.False(t, unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == '\u2800', "%+q in %+q", r, err.Error())
	}
}

// Unused is a client that must not be used, because no server is there.
func Unused(t testing.TB) *redis.Client {
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
	return redistest.OneByOne(h, next)
}

// RequireNotReplicated asserts a *NotReplicatedError with its numbers.
func RequireNotReplicated(t testing.TB, err error, name string, acknowledged, needed int) {
	t.Helper()
	RequireOnly(t, redlatch.ErrNotReplicated, err)
	var few *redlatch.NotReplicatedError
	require.ErrorAs(t, err, &few)
	require.Equal(t, &redlatch.NotReplicatedError{Name: name, Acknowledged: acknowledged, Needed: needed, IsPermit: few.IsPermit}, few)
	RequireShowable(t, err)
}
