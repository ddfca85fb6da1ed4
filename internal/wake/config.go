package wake

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is what a hub needs of a client. Client, ClusterClient and failover
// clients have it. A Ring will not do: it panics when asked for a PubSub without
// channels.
type Redis interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Config is what a hub is made of. Only Redis must be given.
type Config struct {
	Redis Redis

	// Log hears of each kind of trouble once in the hub's life, and once of its
	// end: a lock that falls back to polling is slower, not wrong. Close waits for its
	// handler, which must not wait for Close. Defaults to silence.
	Log *slog.Logger

	// Ping is the silence after which the connection is probed, and the silence
	// after that which ends it: a deaf connection is noticed within twice Ping.
	// Lower notices sooner and costs more PINGs. Defaults to 3 s.
	Ping time.Duration

	// Linger is how long, at least, an unused channel stays subscribed; at most
	// it is twice that. Lower forgets sooner; higher spares a lock that is
	// contended now and then its SUBSCRIBE and UNSUBSCRIBE. Defaults to 1 s.
	Linger time.Duration

	// Idle is how long the connection is kept after its last channel is gone.
	// Defaults to 30 s.
	Idle time.Duration

	// Dial bounds connecting, handshake and first command, as far as the client
	// heeds a context. Defaults to 5 s.
	Dial time.Duration

	// RetryMin and RetryMax bound the pause before connecting again. It doubles
	// with each connection that did not last, and half of it is chance, so that
	// clients do not come back all at once. Default to 50 ms and 5 s.
	RetryMin, RetryMax time.Duration

	// Recheck is how often refused channels are tried again. Defaults to 30 s.
	Recheck time.Duration
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Ping = cmp.Or(c.Ping, 3*time.Second)
	c.Linger = cmp.Or(c.Linger, time.Second)
	c.Idle = cmp.Or(c.Idle, 30*time.Second)
	c.Dial = cmp.Or(c.Dial, 5*time.Second)
	c.RetryMin = cmp.Or(c.RetryMin, 50*time.Millisecond)
	c.RetryMax = cmp.Or(c.RetryMax, 5*time.Second)
	c.Recheck = cmp.Or(c.Recheck, 30*time.Second)
	return c
}
