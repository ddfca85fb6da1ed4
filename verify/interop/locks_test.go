package interop_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/reentrant"
)

// locksOn makes a client of this library that closes when the test ends.
func locksOn(t testing.TB, rdb redis.UniversalClient, options ...redlatch.Option) *redlatch.Client {
	t.Helper()
	quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
	locks, err := redlatch.New(rdb, append([]redlatch.Option{quiet}, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = locks.Close(ctx) // a test may leave locks behind on a server that is gone
	})
	return locks
}

func mustLock(t testing.TB, ctx context.Context, m *reentrant.Mutex) *lock.Hold {
	t.Helper()
	bounded, cancel := context.WithTimeout(ctx, guard)
	defer cancel()
	h, err := m.Lock(bounded)
	require.NoError(t, err)
	return h
}

func unlock(t testing.TB, h *lock.Hold) {
	t.Helper()
	require.NoError(t, h.Unlock(context.Background()))
}

// refused asserts that somebody else has the lock, and returns the error.
func refused(t testing.TB, m *reentrant.Mutex) *redlatch.NotAcquiredError {
	t.Helper()
	_, err := m.TryLock(t.Context())
	var busy *redlatch.NotAcquiredError
	require.ErrorAs(t, err, &busy)
	return busy
}

// grant is the outcome of a Lock that had to wait.
type grant struct {
	hold *lock.Hold
	err  error
	at   time.Time
}

// waits starts a Lock that should block.
func waits(t testing.TB, m *reentrant.Mutex) <-chan grant {
	got := make(chan grant, 1)
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	t.Cleanup(cancel)
	go func() {
		h, err := m.Lock(ctx)
		got <- grant{h, err, time.Now()}
	}()
	return got
}

// within waits for c, and fails the test if no value comes.
func within[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(guard):
		require.FailNow(t, "did not happen: "+what)
	}
	return v
}

// granted waits for the lock that waits requested.
func granted(t testing.TB, got <-chan grant) grant {
	t.Helper()
	g := within(t, got, "the Go waiter gets the lock")
	require.NoError(t, g.err)
	return g
}
