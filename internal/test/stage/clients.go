package stage

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/reentrant"
	"github.com/redlatch/redlatch/semaphore"
)

// LocksOn makes a client of the library that closes when the test ends.
func LocksOn(t testing.TB, rdb redis.UniversalClient, options ...redlatch.Option) *redlatch.Client {
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

// MustLock waits for a mutex, up to Guard.
func MustLock(t testing.TB, ctx context.Context, m *reentrant.Mutex) *lock.Hold {
	t.Helper()
	bounded, cancel := context.WithTimeout(ctx, Guard)
	defer cancel()
	h, err := m.Lock(bounded)
	require.NoError(t, err)
	return h
}

// KeepHandle keeps a handle until the test ends. The garbage collector must not find one that a
// bubble dropped: its cleanup would close channels of the bubble from outside, which ends the
// process.
func KeepHandle(t testing.TB, h *lock.Hold) { t.Cleanup(func() { runtime.KeepAlive(h) }) }

// AwaitRenewal waits until trust in h has grown.
func AwaitRenewal(t testing.TB, h *lock.Hold) {
	t.Helper()
	before := h.TrustedUntil().Add(time.Millisecond) // two readings of one instant differ slightly
	require.Eventually(t, func() bool { return h.TrustedUntil().After(before) || IsClosed(h.Lost()) },
		Guard, time.Millisecond, "no renewal")
	StillHeld(t, h)
}

// TimeOfOneCommand is how long a client tries one command with the default settings.
const TimeOfOneCommand = 2 * time.Second

// LeaseByDefault is the lease of the default settings.
const LeaseByDefault = 30 * time.Second

// Handover is how long the holds of Export wait for Attach.
const Handover = 20 * time.Second

// Export locks a mutex, and exports the hold.
func Export(t *testing.T, m redlatch.Locker) (h *lock.Hold, text string) {
	t.Helper()
	h, err := m.Lock(t.Context())
	require.NoError(t, err)
	text, err = h.Export(t.Context(), Handover)
	require.NoError(t, err)
	return h, text
}

// WarmUp has the client learn the clock of the server, and the server the script of Attach.
func WarmUp(t *testing.T, locks *redlatch.Client) {
	t.Helper()
	m := locks.Mutex("warm up")
	_, text := Export(t, m)
	h, err := m.Attach(t.Context(), text)
	require.NoError(t, err)
	require.NoError(t, h.Unlock(t.Context()))
}

// Heartbeat is the heartbeat of the default settings.
const Heartbeat = 5 * time.Second

// ShortLease is a lease that a test can wait for in real time.
const ShortLease = 4 * time.Second

// ShortRenewal is the time between renewals of such a lease.
const ShortRenewal = 100 * time.Millisecond

// MustAcquire waits for n units of a semaphore.
func MustAcquire(t testing.TB, s *semaphore.Semaphore, n int) *semaphore.Permit {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	p, err := s.Acquire(ctx, n)
	require.NoError(t, err)
	return p
}

// AcquireInBackground begins an Acquire, whose result comes by the channels.
func AcquireInBackground(ctx context.Context, s *semaphore.Semaphore, n int) (<-chan *semaphore.Permit, <-chan error) {
	got, failed := make(chan *semaphore.Permit, 1), make(chan error, 1)
	go func() {
		p, err := s.Acquire(ctx, n)
		if err != nil {
			failed <- err
			return
		}
		got <- p
	}()
	return got, failed
}
