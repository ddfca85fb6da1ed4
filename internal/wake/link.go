package wake

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/redis/go-redis/v9"
)

// link is one connection, and the goroutine that reads it. A broken link is never repaired: a new
// one takes its place.
type link struct {
	hub     *Hub
	pubsub  *redis.PubSub
	reading bool

	ended chan struct{} // closed when the reader has ended
	err   error         // why; valid after ended
}

func (h *Hub) newLink() (*link, error) {
	l := &link{hub: h, ended: make(chan struct{})}
	return l, caught(func() error {
		l.pubsub = h.cfg.Redis.Subscribe(h.ctx)
		return nil
	})
}

// caught calls go-redis, which calls hooks and a dialer of the user. It runs in a goroutine of the
// hub, where a panic would end the process. caught returns the panic as an error, which ends only
// the connection.
func caught(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("redlatch: pub/sub panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return call()
}

// spent returns a context that gives go-redis its deadline, and forbids it to dial. Without it, the
// call of go-redis that notices a broken connection repairs the connection. It does so without
// back-off, and while it holds the lock that Close needs. It also subscribes again to everything
// that was ever asked for. That includes refused channels, which spoil the whole command. The hub
// needs the error instead.
func spent(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	cancel()
	return ctx
}

// send writes one command, and connects first if it is the first one. It returns when the command
// has been written, not when it was answered. Only the commander calls it.
func (l *link) send(cmd *command) error {
	if l.reading {
		ctx, cancel := context.WithTimeout(l.hub.ctx, l.hub.cfg.Ping)
		defer cancel()
		return l.write(spent(ctx), cmd)
	}
	ctx, cancel := context.WithTimeout(l.hub.ctx, l.hub.cfg.Dial)
	defer cancel()
	if err := l.write(ctx, cmd); err != nil {
		return err
	}
	l.reading = true
	go l.read()
	return nil
}

func (l *link) write(ctx context.Context, cmd *command) error {
	return caught(func() error {
		switch cmd.verb {
		case subscribe:
			return l.pubsub.Subscribe(ctx, cmd.names()...)
		case unsubscribe:
			return l.pubsub.Unsubscribe(ctx, cmd.names()...)
		default:
			return l.pubsub.Ping(ctx, cmd.nonce)
		}
	})
}

// close ends the connection and waits for the reader.
func (l *link) close() {
	_ = caught(l.pubsub.Close) // the only other error says that it is closed already
	if l.reading {
		<-l.ended
	}
}

// read passes frames on until the connection ends. It reads without a time limit, while the
// commander watches for silence. A read that timed out in the middle of a frame would leave the
// stream out of step.
func (l *link) read() {
	defer close(l.ended)
	ctx := spent(context.Background())
	for {
		var frame any
		err := caught(func() (err error) {
			frame, err = l.pubsub.ReceiveTimeout(ctx, 0)
			return err
		})
		var reply redis.Error
		switch {
		case errors.As(err, &reply):
			frame = reply
		case err != nil:
			l.err = err
			return
		}
		if err := l.hub.hear(frame); err != nil {
			l.err = err
			return
		}
	}
}

// hear handles one frame. It never blocks on a waiter and never writes.
func (h *Hub) hear(frame any) (err error) {
	var listeners, missed []*Subscription
	h.update(func(r *registry, now time.Time) (look bool) {
		r.heard(now)
		switch f := frame.(type) {
		case *redis.Message:
			listeners = r.published(f.Channel)
		case *redis.Pong:
			look = r.ponged(f.Payload)
		case *redis.Subscription:
			missed, look = r.answered(f.Kind, f.Channel, now)
		case redis.Error:
			look = true
			err = r.refused(f, now)
		}
		return look
	})
	// Not under the mutex: they may use the hub.
	if m, ok := frame.(*redis.Message); ok {
		for _, s := range listeners {
			s.hear(m.Payload)
		}
	}
	for _, s := range missed {
		s.missed()
	}
	return err
}
