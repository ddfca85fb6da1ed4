package pubsub

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// Config contains the settings of a hub. Only Redis must be given.
type Config struct {
	Redis node.Subscriber

	// Log gets each kind of trouble once in the hub's life, and its end once: a lock that falls
	// back to polling is slower, not wrong. The handler of Log must neither block nor use the hub, because
	// the hub calls it under its mutex. Defaults to no log.
	Log *slog.Logger

	// OnDisconnect is called when a connection ended, or could not be made, unless the hub closes. It
	// must not block. nil: nobody is notified.
	OnDisconnect func(err error)

	// Echo sends a text to EchoChannel, in the way in which messages for waiters are sent. It
	// returns when Redis has answered, and soon after ctx ends. Only this hub may use the channel. If
	// the text does not come back, the hub makes another connection; see echo. nil: the hub sends
	// none.
	Echo        func(ctx context.Context, text string) error
	EchoChannel string

	// EchoInterval is the time between two echoes, at most, while somebody waits. A lower value
	// notices sooner and costs more messages. Defaults to 1.5 s.
	EchoInterval time.Duration

	// EchoTimeout is how long an echo may take, if none took longer before. Defaults to 1 s.
	EchoTimeout time.Duration

	// OnTopologyDoubt is called after a connection that got no messages, and before the next one is made. It is also
	// called if a sharded channel was lost. It may block for a moment, but not after the end of ctx. nil: nobody
	// is notified.
	OnTopologyDoubt func(ctx context.Context)

	// Shard returns the node of a cluster that has the sharded channel of that name. The hub then also
	// listens to the sharded channels of those of its channels that IsSharded accepts, or of all if that is nil.
	// Shard may block until ctx ends. nil: the hub listens to none.
	Shard     node.Master
	IsSharded func(channel string) bool

	sharded bool // the channels of the hub are sharded ones, of one node

	// Ping is how long the connection may be silent before the hub probes it. It is also how long
	// the silence may then go on before the hub ends the connection. So the hub notices a dead
	// connection within twice Ping. A lower value notices sooner and costs more PINGs. Defaults to
	// 3 s.
	Ping time.Duration

	// Linger is how long, at least, an unused channel stays subscribed. It may stay for twice that
	// time. A lower value forgets sooner. With a higher one, a lock that is contended now and then
	// needs fewer SUBSCRIBE and UNSUBSCRIBE commands. Defaults to 1 s.
	Linger time.Duration

	// Idle is how long the hub keeps the connection after its last channel is gone. Defaults to
	// 30 s.
	Idle time.Duration

	// Dial bounds connecting, handshake and first command, as far as the client respects a context.
	// Defaults to 5 s.
	Dial time.Duration

	// RetryMin and RetryMax bound the pause before the hub connects again. The pause doubles with
	// each connection that did not last. Half of it is random, so that clients do not come back all
	// at once. They default to 50 ms and 5 s.
	RetryMin, RetryMax time.Duration

	// Recheck is how often the hub tries refused channels again. Defaults to 30 s.
	Recheck time.Duration
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.OnDisconnect == nil {
		c.OnDisconnect = func(error) {}
	}
	if c.OnTopologyDoubt == nil {
		c.OnTopologyDoubt = func(context.Context) {}
	}
	c.EchoInterval = cmp.Or(c.EchoInterval, 1500*time.Millisecond)
	c.EchoTimeout = cmp.Or(c.EchoTimeout, time.Second)
	c.Ping = cmp.Or(c.Ping, 3*time.Second)
	c.Linger = cmp.Or(c.Linger, time.Second)
	c.Idle = cmp.Or(c.Idle, 30*time.Second)
	c.Dial = cmp.Or(c.Dial, 5*time.Second)
	c.RetryMin = cmp.Or(c.RetryMin, 50*time.Millisecond)
	c.RetryMax = cmp.Or(c.RetryMax, 5*time.Second)
	c.Recheck = cmp.Or(c.Recheck, 30*time.Second)
	return c
}
