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
	// back to polling is slower, not wrong. The handler of Log must neither block nor use the hub,
	// because the hub calls it under its mutex. Defaults to no log.
	Log *slog.Logger

	// OnDisconnect is called when a connection ended, or could not be made, unless the hub closes.
	// It must not block. nil: nobody is notified.
	OnDisconnect func(err error)

	// Echo sends a text to EchoChannel, in the way in which messages for waiters are sent. It
	// returns when Redis has answered, and soon after ctx ends. Only this hub may use the channel.
	// If the text does not come back, the hub makes another connection; see echo. nil: the hub
	// sends none.
	Echo        func(ctx context.Context, text string) error
	EchoChannel string

	// OnTopologyDoubt is called after a connection that got no messages, and before the next one is
	// made. It is also called if a sharded channel was lost. It may block for a moment, but not
	// after the end of ctx. nil: nobody is notified.
	OnTopologyDoubt func(ctx context.Context)

	// Shard returns the node of a cluster that has the sharded channel of that name. The hub then
	// also listens to the sharded channels of those of its channels that IsSharded accepts, or of
	// all if that is nil. Shard may block until ctx ends. nil: the hub listens to none.
	Shard     node.Master
	IsSharded func(channel string) bool

	sharded bool // the channels of the hub are sharded ones, of one node

	timings // zero: usualTimings; only tests have others
}

// timings are the durations of a hub that depend on how fast the servers are, or how long waits
// are.
type timings struct {
	// ping is how long the connection may be silent before the hub probes it. It is also how long
	// the silence may then go on before the hub ends the connection. So the hub notices a dead
	// connection within twice ping. A lower value notices sooner and costs more PINGs.
	ping time.Duration

	// linger is how long, at least, an unused channel stays subscribed. It may stay for twice that
	// time. A lower value forgets sooner. With a higher one, a lock that is contended now and then
	// needs fewer SUBSCRIBE and UNSUBSCRIBE commands.
	linger time.Duration

	// idle is how long the hub keeps the connection after its last channel is gone.
	idle time.Duration

	// dial bounds connecting, handshake and first command, as far as the client respects a context.
	dial time.Duration

	// retryMax bounds the pause before the hub connects again, which begins with retryMin. The
	// pause doubles with each connection that did not last. Half of it is random, so that clients
	// do not come back all at once.
	retryMax time.Duration

	// recheck is how often the hub tries refused channels again.
	recheck time.Duration
}

var usualTimings = timings{
	ping:     3 * time.Second,
	linger:   time.Second,
	idle:     30 * time.Second,
	dial:     5 * time.Second,
	retryMax: 5 * time.Second,
	recheck:  30 * time.Second,
}

const (
	retryMin = 50 * time.Millisecond

	// echoInterval is the time between two echoes, at most, while somebody waits. A lower value
	// notices sooner and costs more messages.
	echoInterval = 1500 * time.Millisecond

	// echoTimeout is how long an echo may take, if none took longer before.
	echoTimeout = time.Second
)

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
	c.timings = cmp.Or(c.timings, usualTimings)
	return c
}
