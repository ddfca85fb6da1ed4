// Package wrapped wraps go-redis clients in the ways that programs do. It is a package of its own
// so that it is compiled once: each wrapper has the six hundred methods of a client.
package wrapped

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Embedding is a go-redis client in a struct, as programs wrap it.
type Embedding struct{ redis.UniversalClient }

type nesting struct {
	name string
	*Embedding
}

type delegating struct {
	Opaque
	inner redis.UniversalClient
}

func (d delegating) Process(ctx context.Context, cmd redis.Cmder) error {
	return d.inner.Process(ctx, cmd)
}

func (d delegating) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return d.inner.Subscribe(ctx, channels...)
}

// Opaque hides the client behind it.
type Opaque struct {
	redis.UniversalClient // nil
	OnProcess             func(context.Context, redis.Cmder) error
	OnSubscribe           func(context.Context, ...string) *redis.PubSub
}

func (o Opaque) Process(ctx context.Context, cmd redis.Cmder) error { return o.OnProcess(ctx, cmd) }

func (o Opaque) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return o.OnSubscribe(ctx, channels...)
}

// All wraps a go-redis client in each way. The keys are the ways.
func All(rdb redis.UniversalClient) map[string]redis.UniversalClient {
	return map[string]redis.UniversalClient{
		"embedding":           Embedding{rdb},
		"pointer":             &Embedding{rdb},
		"twice":               Embedding{&Embedding{rdb}},
		"nesting":             &nesting{"traced", &Embedding{rdb}},
		"an unexported field": delegating{inner: rdb},
	}
}
