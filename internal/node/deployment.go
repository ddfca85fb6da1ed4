package node

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Deployment is what redlatch knows of the servers behind a go-redis client, and how it reaches
// each of them. A wrapper can hide everything but PubSub and ClusterSlots.
type Deployment struct {
	Pipeline        func() redis.Pipeliner // nil: commands may go to several servers, or a wrapper may look at each command
	ClusterPipeline func() redis.Pipeliner // of commands to one master of a cluster; nil: each command goes alone
	Direct          bool                   // a command obeys the deadline of its context, see sender.Config
	KnownCluster    bool                   // a redis.ClusterClient was found, so Master is not nil
	Master          Master                 // nil: not known, and session.Acknowledge must not be called
	ReadTimeout     time.Duration          // of a pipeline; 0 or less: none
	PubSub          Subscriber
	ReloadTopology  func(ctx context.Context) // has go-redis learn the nodes of a cluster anew; nil: no cluster is known
	ClusterSlots    func(ctx context.Context) ([]SlotRange, error)
	// FindEviction looks for a server that drops keys with a TTL, such as locks, when its memory is
	// full. It returns its address and its maxmemory-policy. They are empty if it finds none. That
	// includes servers that do not say, or do not let the client ask. In a cluster it asks each
	// master. nil: no server is known.
	FindEviction func(ctx context.Context) (addr, policy string)
}

// SlotRange is a range of hash slots of a cluster that one master serves.
type SlotRange struct {
	First, Last int
	Master      string // its address
}

// DeploymentOf looks for a redis.ClusterClient or a redis.Client: rdb itself, or one that the
// struct rdb wraps.
func DeploymentOf(rdb redis.UniversalClient) Deployment {
	d := Deployment{PubSub: SubscriberOf(rdb)}
	var ownSlots func(context.Context) ([]redis.ClusterSlot, error)
	if found := find(rdb, reflect.TypeFor[*redis.ClusterClient]()); found.IsValid() {
		cluster := (*redis.ClusterClient)(found.UnsafePointer())
		d.KnownCluster, d.Master, d.ReadTimeout = true, MasterOf(cluster.MasterForKey), cluster.Options().ReadTimeout
		d.ReloadTopology, d.FindEviction = reloadTopology(cluster), evictionInCluster(cluster)
		ownSlots = cluster.Options().ClusterSlots
	} else if found := find(rdb, reflect.TypeFor[*redis.Client]()); found.IsValid() {
		one := (*redis.Client)(found.UnsafePointer())
		d.Master = func(context.Context, string) (Node, error) { return Of(one), nil }
		d.FindEviction = func(ctx context.Context) (addr, policy string) { return evictionOf(ctx, one) }
		d.ReadTimeout = one.Options().ReadTimeout
	}
	d.ClusterSlots = clusterSlots(rdb, ownSlots)
	switch c := rdb.(type) { // another client may send commands elsewhere, or look at each command
	case *redis.AutoPipeliner:
		if !d.KnownCluster && d.Master != nil { // it pipelines for a redis.Client
			d.Pipeline = c.Pipeline
		}
	case *redis.ClusterClient:
		d.ClusterPipeline = c.Pipeline
		// A client that may read from replicas asks Redis about each command, without a deadline.
		opt := c.Options()
		d.Direct = obeysDeadlines(opt.ContextTimeoutEnabled, opt.ReadTimeout, opt.WriteTimeout) &&
			!opt.ReadOnly && !opt.RouteByLatency && !opt.RouteRandomly
	case *redis.Client:
		d.Pipeline = c.Pipeline
		d.Direct = obeysDeadlines(c.Options().ContextTimeoutEnabled, c.Options().ReadTimeout, c.Options().WriteTimeout)
	}
	return d
}

// HasRing reports whether rdb is a redis.Ring, or a struct that wraps one.
func HasRing(rdb redis.UniversalClient) bool {
	return find(rdb, reflect.TypeFor[*redis.Ring]()).IsValid()
}

// obeysDeadlines reports whether a go-redis client with these options obeys the deadline of a
// context while it reads and writes. With a negative timeout, it sets no deadlines.
func obeysDeadlines(contextTimeoutEnabled bool, read, write time.Duration) bool {
	return contextTimeoutEnabled && read >= 0 && write >= 0
}

// find returns rdb if it has that type, which is a pointer, or else the pointer of that type among
// the fields of the struct rdb, at any depth. The usual way to add tracing is a struct that embeds
// the client. find looks only into fields that are clients themselves. It misses a client that is
// called in another way, such as through a func; session.Session recognises such a cluster
// otherwise. find returns the zero Value if there is none.
func find(rdb redis.UniversalClient, pointer reflect.Type) reflect.Value {
	client := reflect.TypeFor[redis.UniversalClient]()
	var look func(v reflect.Value, deep int) reflect.Value
	look = func(v reflect.Value, deep int) reflect.Value {
		for (v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer) && !v.IsNil() {
			if v.Type() == pointer {
				return v
			}
			v = v.Elem()
		}
		const deepest = 10 // wrappers that refer to each other have an end
		if v.Kind() != reflect.Struct || deep == deepest || !reflect.PointerTo(v.Type()).Implements(client) {
			return reflect.Value{}
		}
		for i := range v.NumField() {
			if found := look(v.Field(i), deep+1); found.IsValid() {
				return found
			}
		}
		return reflect.Value{}
	}
	return look(reflect.ValueOf(rdb), 0)
}

// reloadTopology returns a func that has go-redis learn the nodes of a cluster anew. go-redis asks
// any node that it knows. If that one has left the cluster, it knows no masters, and another one is
// asked.
func reloadTopology(cluster *redis.ClusterClient) func(ctx context.Context) {
	const asks = 8
	return func(ctx context.Context) {
		var masters atomic.Bool
		for n := 0; n < asks && !masters.Load() && ctx.Err() == nil; n++ {
			// Unlike ReloadState, this ends with ctx, and another one may run beside one that
			// hangs.
			_ = cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { masters.Store(true); return nil })
		}
	}
}

// clusterSlots returns a func that asks which master serves which slots. If the cluster client has
// a func of its own that says so, that one is asked, and otherwise a node.
func clusterSlots(rdb redis.UniversalClient, own func(context.Context) ([]redis.ClusterSlot, error)) func(ctx context.Context) ([]SlotRange, error) {
	ask := func(ctx context.Context) ([]redis.ClusterSlot, error) {
		cmd := redis.NewClusterSlotsCmd(ctx, "cluster", "slots")
		cmd.SetStepCount(1) // see lua.noRetryCmd
		err := rdb.Process(ctx, cmd)
		return cmd.Val(), err
	}
	if own != nil {
		ask = own
	}
	return func(ctx context.Context) (ranges []SlotRange, err error) {
		slots, err := ask(ctx)
		for _, r := range slots {
			if len(r.Nodes) > 0 {
				ranges = append(ranges, SlotRange{First: r.Start, Last: r.End, Master: r.Nodes[0].Addr})
			}
		}
		return ranges, err
	}
}
