package redlatch

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lockerr"
)

// servers is what New knows of the servers behind a go-redis client. WAIT is about the writes of its own
// connection, and a cluster client would send it to any node. So a WAIT needs the go-redis client of one server.
type servers struct {
	cluster     *redis.ClusterClient // nil: no cluster, or a wrapper hides it
	one         *redis.Client        // nil: a cluster, or a wrapper hides it
	master      node.Master          // nil: not known, because a wrapper hides it
	readTimeout time.Duration        // of a pipeline; 0 or less: none
}

func knownServers(rdb redis.UniversalClient) servers {
	if found := find(rdb, reflect.TypeFor[*redis.ClusterClient]()); found.IsValid() {
		cluster := (*redis.ClusterClient)(found.UnsafePointer())
		return servers{cluster: cluster, master: node.MasterOf(cluster.MasterForKey), readTimeout: cluster.Options().ReadTimeout}
	}
	if found := find(rdb, reflect.TypeFor[*redis.Client]()); found.IsValid() {
		one := (*redis.Client)(found.UnsafePointer())
		master := func(context.Context, string) (node.Node, error) { return node.Of(one), nil }
		return servers{one: one, master: master, readTimeout: one.Options().ReadTimeout}
	}
	return servers{}
}

// check sets the error of settings that need more than these servers can do.
func (s servers) check(l *settings.Lock) {
	switch {
	case l.Err != nil, l.Replicas <= 0:
	case s.master == nil:
		l.Err = &lockerr.ConfigError{Setting: "number of replicas", Option: "WithReplicas", Value: l.Replicas, Reason: "needs a *redis.Client or a *redis.ClusterClient, or a struct that contains one"}
	case s.readTimeout > 0 && l.ReplicaTimeout >= s.readTimeout:
		l.Err = &lockerr.ConfigError{Setting: "replica timeout", Option: "WithReplicas", Value: l.ReplicaTimeout, Reason: "must be below the ReadTimeout of the redis client, which is " + s.readTimeout.String()}
	}
}

// findEviction looks for a server that drops keys with a TTL, such as locks, when its memory is full. It
// returns its address and its maxmemory-policy. They are empty if it finds none. That includes servers that
// do not say, or do not let the client ask. In a cluster it asks each master.
func (s servers) findEviction(ctx context.Context) (addr, policy string) {
	if s.one != nil {
		return evictionOf(ctx, s.one)
	}
	if s.cluster == nil {
		return "", ""
	}
	var mu sync.Mutex
	_ = s.cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
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

// infoCommand is an INFO that go-redis does not send again by itself, so that it ends soon after Close.
type infoCommand struct{ *redis.StringCmd }

// NoRetry is how go-redis asks.
func (infoCommand) NoRetry() bool { return true }
