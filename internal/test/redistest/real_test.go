package redistest_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestStartedServerAnswersAndIsGoneAfterTheTest(t *testing.T) {
	t.Parallel()
	var addr string
	t.Run("lives", func(t *testing.T) {
		s := redistest.Start(t)
		addr = s.Addr()
		opt, err := redis.ParseURL(s.URL())
		require.NoError(t, err)
		require.Equal(t, addr, opt.Addr)
		require.NoError(t, s.Client(t).Ping(t.Context()).Err())
		require.Contains(t, []string{"redis", "valkey"}, s.Kind())
		require.Regexp(t, `^\d+\.\d+`, s.Version())
	})
	if addr == "" {
		t.Skip("left out with the server")
	}
	_, err := net.Dial("tcp", addr)
	require.Error(t, err)
}

func TestControlMayDebugConfigureAndOutlivesAclChanges(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	ctx := t.Context()
	require.NoError(t, s.Control().Do(ctx, "DEBUG", "SLEEP", "0").Err())
	require.NoError(t, s.Control().ConfigSet(ctx, "dir", s.Dir()).Err(), "a protected setting")
	require.NoError(t, s.Control().Do(ctx, "ACL", "SETUSER", "default", "off").Err())

	require.Error(t, s.Client(t).Ping(ctx).Err())
	require.NoError(t, s.Control().Ping(ctx).Err())
	s.Restart()
	require.NoError(t, s.Client(t).Ping(ctx).Err(), "a restart forgets the rule")
}

func TestKilledServerComesBackOnTheSamePortAndForgets(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	ctx := t.Context()
	rdb := s.Client(t)
	require.NoError(t, rdb.Set(ctx, "k", "v", 0).Err())
	addr, life := s.Addr(), s.RunID()

	s.Kill()
	s.Kill() // twice does no harm
	require.Error(t, s.Client(t, func(o *redis.Options) { o.MaxRetries = -1; o.DialerRetries = 1 }).Ping(ctx).Err())

	s.Restart()
	require.Equal(t, addr, s.Addr())
	require.NotEqual(t, life, s.RunID())
	require.ErrorIs(t, rdb.Get(ctx, "k").Err(), redis.Nil)
}

func TestStopLetsTheServerSaveAndArgumentsWinOverDefaults(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--save", "3600", "1")
	ctx := t.Context()
	require.NoError(t, s.Client(t).Set(ctx, "k", "v", 0).Err())
	s.Stop()
	s.Stop()
	require.FileExists(t, filepath.Join(s.Dir(), "dump.rdb"))
	s.Restart()
	require.Equal(t, "v", s.Client(t).Get(ctx, "k").Val())
}

func TestPausedServerKeepsConnectionsOpenAndAnswersLater(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	require.NoError(t, rdb.Ping(t.Context()).Err())
	s.Pause()
	answer := make(chan error, 1)
	go func() { answer <- rdb.Ping(context.Background()).Err() }()
	s.Resume()
	require.NoError(t, <-answer)
	s.Pause() // the clean-up also ends a paused server
}

// The server serves its clients after every 2 MB that it loads. With a delay for each key, loading
// takes seconds. The test waits only until the server first serves its clients.
func TestRelaunchReturnsWhileTheServerIsLoading(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--save", "3600", "1", "--rdbcompression", "no", "--key-load-delay", "100000")
	ctx := t.Context()
	rdb := s.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	const keys = 40
	value := make([]byte, 2<<20)
	for range keys {
		require.NoError(t, rdb.Set(ctx, redistest.Name(t), value, 0).Err())
	}
	s.Stop()
	s.Relaunch()
	require.True(t, redis.IsLoadingError(rdb.Ping(ctx).Err()))
}

func TestSharedServerIsOneAndRefusesToBeDisturbed(t *testing.T) {
	t.Parallel()
	a, b := redistest.Shared(t), redistest.Shared(t)
	require.Same(t, a, b)
	require.NoError(t, a.Client(t).Set(t.Context(), redistest.Name(t), "v", time.Minute).Err())
	for _, disturb := range []func(){a.Pause, a.Resume, a.Kill, a.Stop, a.Restart} {
		require.Panics(t, disturb)
	}
}

func TestMissingServerSkipsUnlessItIsRequired(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDLATCH_REDIS_SERVER", "")
	for _, c := range []struct {
		required string
		skipped  bool
	}{{"", true}, {"1", false}} {
		t.Setenv("REDLATCH_REQUIRE_SERVER", c.required)
		end := endOf(func(t testing.TB) { redistest.Start(t) })
		require.Equal(t, c.skipped, end.skipped)
		require.Equal(t, !c.skipped, end.failed)
		require.Contains(t, end.message, "left out")
		require.Contains(t, end.message, "scripts/servers.sh")
	}
}

func TestUnusableServerFailsEvenWhenNoneIsRequired(t *testing.T) {
	notServer := filepath.Join(t.TempDir(), "redis-server")
	require.NoError(t, os.WriteFile(notServer, []byte("#!/bin/sh\necho hello\n"), 0o700))
	t.Setenv("REDLATCH_REDIS_SERVER", notServer)
	t.Setenv("REDLATCH_REQUIRE_SERVER", "")
	require.True(t, endOf(func(t testing.TB) { redistest.Start(t) }).failed)
}

func TestNamesAreReadableAndNeverTheSame(t *testing.T) {
	t.Run("with {braces} and blanks", func(t *testing.T) {
		a, b := redistest.Name(t), redistest.Name(t)
		require.NotEqual(t, a, b)
		require.Contains(t, a, "TestNamesAreReadableAndNeverTheSame")
		require.NotContains(t, a, "{")
		require.NotContains(t, a, " ")
	})
}
