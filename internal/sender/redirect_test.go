package sender

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	resp "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lua"
)

// clusterNode is a server of a cluster that handles EVALSHA and ASKING in its own way.
func clusterNode(t *testing.T, run func(c *resp.Peer)) (addr string) {
	s, err := resp.NewServer("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.Register("EVALSHA", func(c *resp.Peer, _ string, _ []string) { run(c) }))
	require.NoError(t, s.Register("ASKING", func(c *resp.Peer, _ string, _ []string) { c.WriteOK() }))
	return s.Addr().String()
}

// scriptCommand returns a command of the library, as a caller gives it to a sender.
func scriptCommand(t *testing.T) (cmd redis.Cmder) {
	_, err := lua.Release(t.Context(), captured{&cmd}, lua.ReleaseParams{LockKey: "foo", Channel: "c{foo}", Acquisition: "a:1"})
	require.ErrorIs(t, err, errCaptured)
	return cmd
}

type captured struct{ cmd *redis.Cmder }

var errCaptured = errors.New("captured")

func (c captured) Process(_ context.Context, cmd redis.Cmder) error {
	*c.cmd = cmd
	return errCaptured
}

// A pipeline fails before a node runs its commands. go-redis sends it again, a node runs the
// commands, and the replies are lost. go-redis then keeps the first error of some of the commands,
// as if nobody had run them.
func TestAPipelineKeepsNoErrorOfAnEarlierCopy(t *testing.T) {
	for _, first := range []string{"MOVED", "ASK", "a failed dial"} {
		t.Run(first, func(t *testing.T) {
			var ran, dials atomic.Int64
			last := clusterNode(t, func(c *resp.Peer) { ran.Add(1); c.Close() })
			addr := last
			if first != "a failed dial" {
				addr = clusterNode(t, func(c *resp.Peer) { c.WriteError(first + " 12182 " + last) })
			}
			rdb := redis.NewClusterClient(&redis.ClusterOptions{
				Protocol: 2, DisableIdentity: true, MaxRedirects: 1, DialerRetries: 1,
				ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
					return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
				},
				Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if dials.Add(1) == 1 && first == "a failed dial" {
						return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
					}
					return new(net.Dialer).DialContext(ctx, network, addr)
				},
			})
			t.Cleanup(func() { require.NoError(t, rdb.Close()) })
			s := New(Config{Redis: rdb, Pipeline: rdb.Pipeline})
			t.Cleanup(s.Close)
			w := &worker{sender: s}
			for range 3 {
				w.batch = append(w.batch, &command{
					Context: t.Context(), cmd: scriptCommand(t), end: time.Now().Add(time.Minute), settled: make(chan struct{}, 1),
				})
			}
			w.sendPipeline()
			require.Positive(t, ran.Load())
			for _, c := range w.batch {
				class, _ := lua.Classify(c.err)
				require.Equal(t, lua.Unanswered, class, "%v", c.err)
			}
		})
	}
}
