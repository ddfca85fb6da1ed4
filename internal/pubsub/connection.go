package pubsub

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/node"
)

// connection is one connection, and the goroutine that reads it. A broken link is never repaired: a
// new one takes its place.
type connection struct {
	hub     *Hub
	pubsub  node.PubSub
	reading bool
	pinged  bool // connect has sent a PING, which is not answered yet

	ended chan struct{} // closed when the reader has ended
	err   error         // why; valid after ended
}

func (h *Hub) newConnection() (*connection, error) {
	l := &connection{hub: h, ended: make(chan struct{})}
	return l, recoverPanic(func() error {
		l.pubsub = h.cfg.Redis.Subscribe(h.ctx)
		return nil
	})
}

// recoverPanic calls go-redis, which calls hooks and a dialer of the user. It runs in a goroutine
// of the hub, where a panic would end the process. recoverPanic returns the panic as an error,
// which ends only the connection.
func recoverPanic(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("redlatch: pub/sub panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return call()
}

// withoutDial returns a context that gives go-redis its deadline, and forbids it to dial. Without
// it, the call of go-redis that notices a broken connection repairs the connection. It does so
// without back-off, and while it holds the lock that Close needs. It also subscribes again to
// everything that was ever asked for. That includes refused channels, which spoil the whole
// command. The hub needs the error instead.
func withoutDial(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	cancel()
	return ctx
}

// send writes one command, and connects first if it is the first one. It returns when the command
// has been written, not when it was answered. Only the commander calls it.
func (c *connection) send(cmd *command) error {
	if c.reading {
		ctx, cancel := context.WithTimeout(c.hub.ctx, c.hub.cfg.ping)
		defer cancel()
		return c.write(withoutDial(ctx), cmd)
	}
	ctx, cancel := context.WithTimeout(c.hub.ctx, c.hub.cfg.dial)
	defer cancel()
	if err := c.connect(ctx, cmd); err != nil {
		c.hub.lastDialFailed = true
		return err
	}
	c.hub.lastDialFailed = false
	c.reading = true
	go c.read()
	return nil
}

// connect makes the connection, and writes the first command. In a cluster, go-redis connects to
// the master of the first channel. If that failed, connect begins with a PING. It has no channel,
// so go-redis connects to any node. All nodes get all messages, and a dead one must not cost the
// waiters of the others theirs.
func (c *connection) connect(ctx context.Context, cmd *command) error {
	if c.hub.lastDialFailed {
		if err := c.write(ctx, &command{verb: ping, nonce: "elsewhere"}); err != nil {
			return err
		}
		c.pinged = true
	}
	return c.write(ctx, cmd)
}

func (c *connection) write(ctx context.Context, cmd *command) error {
	return recoverPanic(func() error {
		switch {
		case cmd.verb == subscribe && c.hub.cfg.sharded:
			return c.pubsub.SSubscribe(ctx, cmd.names()...)
		case cmd.verb == unsubscribe && c.hub.cfg.sharded:
			return c.pubsub.SUnsubscribe(ctx, cmd.names()...)
		case cmd.verb == subscribe:
			return c.pubsub.Subscribe(ctx, cmd.names()...)
		case cmd.verb == unsubscribe:
			return c.pubsub.Unsubscribe(ctx, cmd.names()...)
		default:
			return c.pubsub.Ping(ctx, cmd.nonce)
		}
	})
}

// close ends the connection and waits for the reader.
func (c *connection) close() {
	_ = recoverPanic(c.pubsub.Close) // the only other error says that it is closed already
	if c.reading {
		<-c.ended
	}
}

// read passes frames on until the connection ends. It reads without a time limit, while the
// commander watches for silence. A read that timed out in the middle of a frame would leave the
// stream out of step.
func (c *connection) read() {
	defer close(c.ended)
	ctx := withoutDial(context.Background())
	for {
		var frame any
		err := recoverPanic(func() (err error) {
			frame, err = c.pubsub.ReceiveTimeout(ctx, 0)
			return err
		})
		var reply redis.Error
		switch {
		case errors.As(err, &reply) && c.pinged: // the refusal of the PING, and not of the command in flight
			frame, c.pinged = &redis.Pong{}, false
		case errors.As(err, &reply):
			frame = reply
		case err != nil:
			c.err = err
			return
		}
		if _, ok := frame.(*redis.Pong); ok {
			c.pinged = false
		}
		if err := c.hub.handleFrame(frame); err != nil {
			c.err = err
			return
		}
	}
}

// handleFrame handles one frame. It never blocks on a waiter and never writes.
func (h *Hub) handleFrame(frame any) (err error) {
	var listeners, missed []*Subscription
	h.update(func(r *hubState, now time.Time) (look bool) {
		r.onFrame(now)
		switch f := frame.(type) {
		case *redis.Message:
			listeners, look = r.onMessage(f, now)
			return look // only an echo concerns the commander
		case *redis.Pong:
			err = r.onPong(f.Payload, now)
		case *redis.Subscription:
			missed = r.onConfirmation(f.Kind, f.Channel, now)
		case redis.Error:
			err = r.onErrorReply(f, now)
		}
		return true
	})
	// Not under the mutex: they may use the hub.
	if m, ok := frame.(*redis.Message); ok {
		for _, s := range listeners {
			s.onMessage(m.Payload)
		}
	}
	for _, s := range missed {
		s.onGap()
	}
	return err
}
