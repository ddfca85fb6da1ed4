// Package node knows the clients of go-redis: which servers a client talks to, and how redlatch
// reaches each server.
//
// The types of go-redis' clients have six hundred methods, and since go-redis 9.22 each package
// that mentions one makes them all again. It then takes three seconds to compile instead of half of
// one. So only this package, the root package and package catalog mention them. The others use the
// interfaces here.
package node

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Node is the client of one server. Two that are equal are the client of the same server.
type Node interface {
	Subscriber
	// Conn returns a connection that nobody else uses.
	Conn() Conn
}

// Master returns the client of the server that has a key and takes writes. It may have to ask
// servers which one that is.
type Master = func(ctx context.Context, key string) (Node, error)

// Conn is one connection. The caller must close it.
type Conn interface {
	Pipeline() redis.Pipeliner
	Close() error
}

// Subscriber makes connections for pub/sub. A Ring cannot be used, because it panics when asked for
// a PubSub without channels.
type Subscriber interface {
	Subscribe(ctx context.Context, channels ...string) PubSub
}

// PubSub is a connection for pub/sub. It is a *redis.PubSub.
type PubSub interface {
	Subscribe(ctx context.Context, channels ...string) error
	Unsubscribe(ctx context.Context, channels ...string) error
	SSubscribe(ctx context.Context, channels ...string) error
	SUnsubscribe(ctx context.Context, channels ...string) error
	Ping(ctx context.Context, payload ...string) error
	ReceiveTimeout(ctx context.Context, timeout time.Duration) (any, error)
	Close() error
}

// MasterOf returns a func that finds clients, as a method of a redis.ClusterClient does, as a
// Master.
func MasterOf(find func(ctx context.Context, key string) (*redis.Client, error)) Master {
	return func(ctx context.Context, key string) (Node, error) {
		rdb, err := find(ctx, key)
		if err != nil {
			return nil, err
		}
		return Of(rdb), nil
	}
}

// Of returns a client as a Node.
func Of(rdb *redis.Client) Node { return client{rdb} }

type client struct{ rdb *redis.Client }

func (c client) Conn() Conn { return c.rdb.Conn() }

func (c client) Subscribe(ctx context.Context, channels ...string) PubSub {
	return c.rdb.Subscribe(ctx, channels...)
}

// SubscriberOf returns a client as a Subscriber.
func SubscriberOf(rdb redis.UniversalClient) Subscriber { return subscriber{rdb} }

type subscriber struct{ rdb redis.UniversalClient }

func (s subscriber) Subscribe(ctx context.Context, channels ...string) PubSub {
	return s.rdb.Subscribe(ctx, channels...)
}
