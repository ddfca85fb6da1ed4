package sender

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	resp "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// node is a server of a cluster that handles GET and ASKING in its own way.
func node(t *testing.T, get func(c *resp.Peer)) (addr string) {
	s, err := resp.NewServer("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.Register("GET", func(c *resp.Peer, _ string, _ []string) { get(c) }))
	require.NoError(t, s.Register("ASKING", func(c *resp.Peer, _ string, _ []string) { c.WriteOK() }))
	return s.Addr().String()
}

// A node sends the commands of a pipeline to another one, which runs them, and whose replies are lost. go-redis then
// leaves the redirect in some of the commands, as if nobody had run them.
func TestARedirectInAPipelineSaysNothingAboutTheOutcome(t *testing.T) {
	for _, redirect := range []string{"MOVED", "ASK"} {
		t.Run(redirect, func(t *testing.T) {
			var ran atomic.Int64
			other := node(t, func(c *resp.Peer) { ran.Add(1); c.Close() })
			first := node(t, func(c *resp.Peer) { c.WriteError(redirect + " 12182 " + other) })
			rdb := redis.NewClusterClient(&redis.ClusterOptions{
				Protocol: 2, DisableIdentity: true, MaxRedirects: 1,
				ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
					return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: first}}}}, nil
				},
			})
			t.Cleanup(func() { require.NoError(t, rdb.Close()) })
			s := New(Config{Redis: rdb, Pipeline: rdb.Pipeline, Redirected: true})
			t.Cleanup(s.Close)
			w := &worker{sender: s}
			for range 3 {
				w.batch = append(w.batch, &command{
					Context: t.Context(), cmd: redis.NewCmd(t.Context(), "get", "foo"), end: time.Now().Add(time.Minute), settled: make(chan struct{}, 1),
				})
			}
			w.sendPipeline()
			require.Positive(t, ran.Load())
			for _, c := range w.batch {
				var answer redis.Error
				require.Error(t, c.err)
				require.False(t, errors.As(c.err, &answer), "%v is no answer", c.err)
			}
		})
	}
}
