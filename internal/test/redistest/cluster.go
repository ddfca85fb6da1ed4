package redistest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cluster is servers that share the slots, each master with the same number of replicas.
type Cluster struct {
	Nodes []*Server // the masters, and then their replicas
}

// StartCluster starts a cluster of masters and replicas, and stops it at the end of the test. It
// returns when all nodes know each other and get each other's messages, and each replica has the
// data of its master.
func StartCluster(t testing.TB, masters, replicas int, args ...string) *Cluster {
	t.Helper()
	// A replica would get its data only after five seconds, and be in CLUSTER SLOTS only after ten.
	args = append([]string{"--cluster-enabled", "yes", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}, args...)
	var nodes []*Server
	for range masters * (1 + replicas) {
		nodes = append(nodes, Start(t, args...))
	}
	return NewCluster(t, masters, nodes)
}

// NewCluster makes a cluster of servers that run with cluster-enabled, as StartCluster does. The
// first ones become the masters.
func NewCluster(t testing.TB, masters int, nodes []*Server) *Cluster {
	t.Helper()
	c := &Cluster{Nodes: nodes}
	ctx := context.Background()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("redistest: the cluster does not start: %v", err)
		}
	}
	const slots = 1 << 14
	for i, node := range c.Nodes {
		check(node.control.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		if i < masters {
			check(node.control.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err())
		}
		if i > 0 {
			check(node.control.ClusterMeet(ctx, "127.0.0.1", fmt.Sprint(c.Nodes[0].port)).Err())
		}
	}
	c.await(t, "all nodes to know each other", func(info string) bool {
		return strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r\n", len(c.Nodes)))
	})
	for i, node := range c.Nodes[masters:] {
		id, err := c.Nodes[i%masters].control.Do(ctx, "CLUSTER", "MYID").Text()
		check(err)
		check(node.control.ClusterReplicate(ctx, id).Err())
	}
	c.await(t, "all slots", func(info string) bool { return strings.Contains(info, "cluster_state:ok") })
	for _, node := range c.Nodes[masters:] {
		node.awaitLink(t)
	}
	c.awaitMessages(t)
	return c
}

// awaitMessages waits until a message that any node publishes reaches all nodes. While a cluster is
// new, its nodes replace their connections to each other, and lose the messages of that time, also
// if CLUSTER NODES says "connected".
func (c *Cluster) awaitMessages(t testing.TB) {
	t.Helper()
	const channel = "redistest:cluster"
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	for _, node := range c.Nodes {
		sub := node.control.Subscribe(ctx, channel)
		for _, sender := range c.Nodes {
			for text := ""; text != sender.Addr(); {
				if err := sender.control.Publish(ctx, channel, sender.Addr()).Err(); err != nil {
					t.Fatalf("redistest: the cluster does not start: %v", err)
				}
				answer, err := sub.ReceiveTimeout(ctx, 20*time.Millisecond)
				if m, ok := answer.(*redis.Message); ok {
					text = m.Payload
				} else if err != nil && ctx.Err() != nil {
					t.Fatalf("redistest: node %s gets no messages of node %s: %v", node.Addr(), sender.Addr(), err)
				}
			}
		}
		_ = sub.Close()
	}
}

// await waits until CLUSTER INFO of every node says so.
func (c *Cluster) await(t testing.TB, what string, holds func(info string) bool) {
	t.Helper()
	for end := time.Now().Add(readyWithin); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if !slices.ContainsFunc(c.Nodes, func(s *Server) bool {
			info, err := s.control.ClusterInfo(context.Background()).Result()
			return err != nil || !holds(info)
		}) {
			return
		}
	}
	t.Fatalf("redistest: waited in vain for %s", what)
}

// Client returns a client of the cluster, which the test closes at its end.
func (c *Cluster) Client(t testing.TB, mods ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	opt := &redis.ClusterOptions{Addrs: []string{c.Nodes[0].Addr()}}
	for _, mod := range mods {
		mod(opt)
	}
	rdb := redis.NewClusterClient(opt)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Remove takes a master that has no replica out of the cluster, as an operator does. It loses its
// data, and another master gets its slots. The server goes on running, alone.
func (c *Cluster) Remove(t testing.TB, gone *Server) {
	t.Helper()
	ctx := context.Background()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("redistest: the node does not leave the cluster: %v", err)
		}
	}
	c.Nodes = slices.DeleteFunc(c.Nodes, func(s *Server) bool { return s == gone })
	heir := c.Nodes[0].control
	id, err := gone.control.Do(ctx, "CLUSTER", "MYID").Text()
	check(err)
	all := redis.NewClusterSlotsCmd(ctx, "cluster", "slots")
	check(gone.control.Process(ctx, all))
	check(gone.control.FlushAll(ctx).Err())
	for _, r := range all.Val() {
		if r.Nodes[0].ID != id {
			continue
		}
		check(gone.control.ClusterDelSlotsRange(ctx, r.Start, r.End).Err())
		check(heir.ClusterDelSlotsRange(ctx, r.Start, r.End).Err())
		check(heir.ClusterAddSlotsRange(ctx, r.Start, r.End).Err())
	}
	check(heir.Do(ctx, "CLUSTER", "BUMPEPOCH").Err())
	for _, node := range c.Nodes {
		check(node.control.ClusterForget(ctx, id).Err())
	}
	check(gone.control.ClusterResetSoft(ctx).Err())
	c.await(t, "all slots on the other nodes", func(info string) bool {
		return strings.Contains(info, "cluster_state:ok") &&
			strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r\n", len(c.Nodes))) &&
			strings.Contains(info, fmt.Sprintf("cluster_size:%d\r\n", len(c.Nodes)))
	})
}
