package node

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// evictionInCluster returns a FindEviction that asks all masters at the same time.
func evictionInCluster(cluster *redis.ClusterClient) func(ctx context.Context) (addr, policy string) {
	return func(ctx context.Context) (addr, policy string) {
		var mu sync.Mutex
		_ = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			defer func() { _ = recover() }() // of a hook of this node; go-redis calls it in a goroutine of its own
			if a, p := evictionOf(ctx, node); p != "" {
				mu.Lock()
				defer mu.Unlock()
				addr, policy = a, p
			}
			return nil
		})
		return addr, policy
	}
}

// evictionOf asks one server.
func evictionOf(ctx context.Context, server *redis.Client) (addr, policy string) {
	info := &infoCommand{redis.NewStringCmd(ctx, "info", "memory")}
	if server.Process(ctx, info) != nil {
		return "", ""
	}
	limited := false
	for line := range strings.Lines(info.Val()) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), ":"); key {
		case "maxmemory":
			limited = value != "0"
		case "maxmemory_policy":
			policy = value
		}
	}
	if !limited || policy == "noeviction" {
		return "", ""
	}
	return server.Options().Addr, policy
}

// infoCommand is an INFO that go-redis does not send again by itself, so that it ends soon after
// Close.
type infoCommand struct{ *redis.StringCmd }

// NoRetry is how go-redis asks.
func (infoCommand) NoRetry() bool { return true }
