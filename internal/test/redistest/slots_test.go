package redistest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
)

// writesBoth is a script with two keys.
const writesBoth = `return redis.call('SET', KEYS[1], 'a') and redis.call('SET', KEYS[2], 'b')`

// asked sends a command to one node, as a client that does not follow redirects.
func asked(t *testing.T, v *Virtual, s *Slots, node int, args ...any) error {
	t.Helper()
	at := addrOf(node)
	c := v.ClusterClient(s, func(o *redis.ClusterOptions) { o.MaxRedirects = -1 })
	var only *redis.Client
	require.NoError(t, c.ForEachMaster(context.Background(), func(_ context.Context, r *redis.Client) error {
		if r.Options().Addr == at {
			only = r
		}
		return nil
	}))
	require.NotNil(t, only)
	pipe := only.Pipeline()
	if args[0] == "ASKING" {
		pipe.Do(context.Background(), "ASKING")
		args = args[1:]
	}
	cmd := pipe.Do(context.Background(), args...)
	_, _ = pipe.Exec(context.Background())
	return cmd.Err()
}

// The name orders has slot 105 of 16384, so of three nodes the first has it.
func TestNodesOfAVirtualClusterRefuseWhatIsNotTheirs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := Bubble(t)
		s := v.Cluster(3)
		both := []any{"EVAL", writesBoth, 2, "{orders}:a", "{orders}:b"}
		require.NoError(t, v.Server.Set("{orders}:a", "x"))
		owner, other := s.owners[key.Slot("orders")], (s.owners[key.Slot("orders")]+1)%3

		require.ErrorContains(t, asked(t, v, s, other, both...), "MOVED")
		require.NoError(t, asked(t, v, s, owner, both...))
		require.ErrorContains(t, asked(t, v, s, owner, "EVAL", writesBoth, 2, "x", "y"), "CROSSSLOT")

		v.Server.Del("{orders}:b")
		s.StartMigration("orders")
		require.ErrorContains(t, asked(t, v, s, owner, both...), "TRYAGAIN", "one key may be on the other node")
		require.ErrorContains(t, asked(t, v, s, owner, "EVAL", "return 1", 1, "{orders}:b"), "ASK")
		require.NoError(t, asked(t, v, s, owner, "EVAL", "return 1", 1, "{orders}:a"), "it is still here")
		require.ErrorContains(t, asked(t, v, s, other, "EVAL", "return 1", 1, "{orders}:b"), "MOVED", "without ASKING")
		require.NoError(t, asked(t, v, s, other, "ASKING", "EVAL", "return redis.call('SET', KEYS[1], 'b')", 1, "{orders}:b"))
		require.ErrorContains(t, asked(t, v, s, other, append([]any{"ASKING"}, both...)...), "TRYAGAIN")
		require.Equal(t, 1, s.MoveKeys(func(string) bool { return true }))
		require.NoError(t, asked(t, v, s, other, append([]any{"ASKING"}, both...)...))
		s.EndMigration()
		require.ErrorContains(t, asked(t, v, s, owner, both...), "MOVED")
		require.NoError(t, asked(t, v, s, other, both...))

		s.SetDown(true)
		require.ErrorContains(t, asked(t, v, s, other, both...), "CLUSTERDOWN")
		s.SetDown(false)
		require.Positive(t, s.Refused())
	})
}

// A client follows the slot to the node that takes over.
func TestAVirtualClusterPromotesANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := Bubble(t)
		s := v.Cluster(3)
		c := v.ClusterClient(s)
		ctx := context.Background()
		require.NoError(t, c.Eval(ctx, writesBoth, []string{"{orders}:a", "{orders}:b"}).Err())
		dead := s.Fail("orders")
		require.Positive(t, v.KillNode(dead))
		require.Error(t, c.Eval(ctx, writesBoth, []string{"{orders}:a", "{orders}:b"}).Err())
		s.Promote(dead)
		c.ReloadState(ctx)
		time.Sleep(time.Second)
		require.NoError(t, c.Eval(ctx, writesBoth, []string{"{orders}:a", "{orders}:b"}).Err())

		began := time.Now()
		go s.Stall("orders", 3*time.Second)
		synctest.Wait()
		require.NoError(t, c.Eval(ctx, "return 1", []string{"{orders}:a"}).Err())
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestASnapshotGivesBackWhatTheServerHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Bubble(t)
		server := m.Server
		require.NoError(t, server.Set("text", "a"))
		server.HSet("hash", "field", "a")
		server.SetTTL("hash", time.Minute)
		_, err := server.ZAdd("zset", 1, "member")
		require.NoError(t, err)
		require.NoError(t, server.Set("ends", "x"))
		server.SetTTL("ends", 5*time.Second)
		server.HSet("ends and comes back", "field", "a")
		server.SetTTL("ends and comes back", 5*time.Second)
		restore := m.Snapshot()

		time.Sleep(10 * time.Second)
		server.HSet("ends and comes back", "field", "b")
		require.NoError(t, server.Set("new", "a"))
		server.HSet("hash", "field", "b")
		server.Del("text")
		_, err = server.ZAdd("zset", 2, "member")
		require.NoError(t, err)
		require.True(t, restore())

		require.ElementsMatch(t, []string{"text", "hash", "zset"}, server.Keys(), "and the lease of ends is over")
		require.Equal(t, "a", server.HGet("hash", "field"))
		require.Equal(t, 50*time.Second, server.TTL("hash"))
		scores, err := server.SortedSet("zset")
		require.NoError(t, err)
		require.Equal(t, map[string]float64{"member": 1}, scores)
		require.False(t, m.Snapshot()())
	})
}
