package stage

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// Pair is a master with a replica. Its clients use whichever server is the master, as clients of
// Sentinel do.
type Pair struct {
	*testing.T
	Master, Replica *redistest.Server
	Replicas        int                    // that the master has in all
	addr            atomic.Pointer[string] // of the current master
}

// NewPair starts a master and a replica.
func NewPair(t *testing.T) *Pair {
	t.Helper()
	p := &Pair{T: t, Master: redistest.Start(t, "--repl-diskless-sync-delay", "0"), Replica: redistest.Start(t), Replicas: 1}
	p.Lead(p.Master)
	host, port, err := net.SplitHostPort(p.Master.Addr())
	require.NoError(t, err)
	require.NoError(t, p.Replica.Control().Do(t.Context(), "REPLICAOF", host, port).Err())
	p.Replicated()
	return p
}

// Lead makes s the master that new connections reach.
func (p *Pair) Lead(s *redistest.Server) {
	addr := s.Addr()
	p.addr.Store(&addr)
}

// Replicated returns when every replica has all data of the master. It needs a write, because WAIT
// counts the writes of its own connection.
func (p *Pair) Replicated() {
	p.Helper()
	conn := p.Master.Control().Conn()
	defer conn.Close()
	require.Eventually(p, func() bool {
		require.NoError(p, conn.Set(p.Context(), "mark", "x", 0).Err())
		n, err := conn.Wait(p.Context(), p.Replicas, 100*time.Millisecond).Result()
		return err == nil && n == int64(p.Replicas)
	}, Guard, time.Millisecond)
}

// FailOver kills the master, and makes the replica the master.
func (p *Pair) FailOver() {
	p.Helper()
	p.Master.Kill()
	require.NoError(p, p.Replica.Control().Do(p.Context(), "REPLICAOF", "NO", "ONE").Err())
	p.Lead(p.Replica)
}

// Locks makes a client that follows the master.
func (p *Pair) Locks(options ...redlatch.Option) *redlatch.Client {
	p.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: p.Master.Addr(),
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, *p.addr.Load())
		},
	})
	p.Cleanup(func() { _ = rdb.Close() })
	return LocksOn(p, rdb, options...)
}

// Move sends all clients from one server to the other, as a proxy or a DNS name does.
func (p *Pair) Move(from, to *redistest.Server) {
	p.Helper()
	p.Lead(to)
	require.NoError(p, from.Control().Do(p.Context(), "CLIENT", "KILL", "TYPE", "normal").Err())
}

// Deafen cuts the replica off from the master, so that it gets no further writes.
func (p *Pair) Deafen() {
	p.Helper()
	p.Replica.Pause()
	require.NoError(p, p.Master.Control().Do(p.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
}

// FailOverToTheDeaf makes the replica the master, which then lacks what came after Deafen.
func (p *Pair) FailOverToTheDeaf() {
	p.Helper()
	p.Master.Kill()
	p.Replica.Resume()
	p.FailOver()
}
