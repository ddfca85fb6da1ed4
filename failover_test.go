package redlatch_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// pair is a master with a replica, and clients that go where the master is, as
// those of Sentinel do.
type pair struct {
	*testing.T
	master, replica *redistest.Server
	addr            atomic.Pointer[string] // of the present master
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{T: t, master: redistest.Start(t, "--repl-diskless-sync-delay", "0"), replica: redistest.Start(t)}
	p.lead(p.master)
	host, port, err := net.SplitHostPort(p.master.Addr())
	require.NoError(t, err)
	require.NoError(t, p.replica.Control().Do(t.Context(), "REPLICAOF", host, port).Err())
	p.replicated()
	return p
}

func (p *pair) lead(s *redistest.Server) {
	addr := s.Addr()
	p.addr.Store(&addr)
}

// replicated returns when the replica has all that the master has. The write is
// needed: WAIT counts for what its connection has written.
func (p *pair) replicated() {
	p.Helper()
	conn := p.master.Control().Conn()
	defer conn.Close()
	require.Eventually(p, func() bool {
		require.NoError(p, conn.Set(p.Context(), "mark", "x", 0).Err())
		n, err := conn.Wait(p.Context(), 1, 100*time.Millisecond).Result()
		return err == nil && n == 1
	}, guard, time.Millisecond)
}

// failOver kills the master and has the replica take its place.
func (p *pair) failOver() {
	p.Helper()
	p.master.Kill()
	require.NoError(p, p.replica.Control().Do(p.Context(), "REPLICAOF", "NO", "ONE").Err())
	p.lead(p.replica)
}

func (p *pair) locks(options ...redlatch.Option) *redlatch.Client {
	p.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: p.master.Addr(),
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, *p.addr.Load())
		},
	})
	p.Cleanup(func() { _ = rdb.Close() })
	return locksOn(p, rdb, options...)
}

// The replica has the lock: a holder sees nothing of the failover, and a waiter
// is woken by the new master.
func TestLockSurvivesAFailoverThatKeepsIt(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	name := redistest.Name(t)
	h := mustLock(t, t.Context(), p.locks(redlatch.WithLease(20*time.Second), redlatch.WithRenewal(200*time.Millisecond)).Mutex(name))
	waiter := p.locks(redlatch.WithPoll(time.Second)).Mutex(name)
	got := make(chan error, 1)
	go func() {
		next, err := waiter.Lock(t.Context())
		if err == nil {
			err = next.Unlock(t.Context())
		}
		got <- err
	}()
	p.replicated()
	p.failOver()
	awaitRenewal(t, h)
	awaitRenewal(t, h)
	stillHeld(t, h)
	require.NoError(t, h.Unlock(t.Context()))
	require.NoError(t, within(t, got, "the waiter gets the lock of the new master"))
}

// The replica lacks the lock: it is free on the new master. The former holder is
// told by its next renewal, and who has it now has a larger fence.
func TestFailoverThatForgetsALockIsTold(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	name := redistest.Name(t)
	p.replica.Pause()
	require.NoError(t, p.master.Control().Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err()) // or the write waits for it in a socket
	h := mustLock(t, t.Context(), p.locks(redlatch.WithLease(20*time.Second), redlatch.WithRenewal(200*time.Millisecond)).Mutex(name))
	p.master.Kill()
	p.replica.Resume()
	p.failOver()

	next := mustLock(t, t.Context(), p.locks().Mutex(name))
	require.Greater(t, next.Fence(), h.Fence())
	within(t, h.Lost(), "the holder is told")
	require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrLost)
	stillHeld(t, next)
	require.NoError(t, next.Unlock(t.Context()))
}
