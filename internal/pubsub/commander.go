package pubsub

import (
	"errors"
	"time"
)

var (
	errSilent     = errors.New("redlatch: pub/sub connection is silent")
	errUnanswered = errors.New("redlatch: pub/sub command stays unanswered")
	errUnasked    = errors.New("redlatch: pub/sub error that answers no command")
	errExited     = errors.New("redlatch: a hook or a dialer ended the goroutine of the pub/sub connection")
	errDeaf       = errors.New("redlatch: pub/sub connection gets no messages")
	errIdle       = errors.New("redlatch: nobody waits")
)

// keepRunning calls work. A hook or a dialer of the user may end the goroutine (runtime.Goexit).
// Another one then goes on, after the pause that exited returns.
func (h *Hub) keepRunning(work func(), exited func() (pause time.Duration)) {
	finished := false
	defer func() {
		if !finished {
			pause := exited()
			h.done.Go(func() { h.sleep(pause); h.keepRunning(work, exited) })
		}
	}()
	work()
	finished = true
}

// run is the commander. Until Close, it keeps a connection while anybody waits.
func (h *Hub) run() {
	for h.awaitWork() {
		err := h.runConnection()
		if errors.Is(err, errIdle) {
			continue
		}
		pause := h.disconnected(err)
		if errors.Is(err, errDeaf) {
			h.cfg.OnTopologyDoubt(h.ctx)
		}
		h.sleep(pause)
	}
}

// awaitWork blocks until somebody waits for a channel. It returns false if the hub is closed.
func (h *Hub) awaitWork() bool {
	for {
		h.mu.Lock()
		work, closed := len(h.state.channels) > 0, h.state.closed
		h.mu.Unlock()
		if work || closed {
			return !closed
		}
		select {
		case <-h.commanderWake:
		case <-h.ctx.Done():
		}
	}
}

// runConnection serves one connection until that ends, and returns why it ended.
func (h *Hub) runConnection() error {
	l, err := h.newConnection()
	if err != nil {
		return err
	}
	defer l.close()
	h.update(func(r *hubState, _ time.Time) bool { r.onConnecting(); return false })

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		cmd, wait, err := h.next()
		if err != nil {
			return err
		}
		if cmd != nil {
			if err := l.send(cmd); err != nil {
				return err
			}
			h.update(func(r *hubState, now time.Time) bool { r.sent(cmd, now); return false })
			continue
		}
		timer.Reset(wait)
		select {
		case <-h.commanderWake:
		case <-timer.C:
		case <-l.ended:
			return l.err
		case <-h.ctx.Done():
			return h.ctx.Err()
		}
	}
}

// next returns the command to send now, or how long to wait if nothing happens. The error says that
// this connection is of no more use.
func (h *Hub) next() (cmd *command, wait time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if err := h.state.connectionError(now); err != nil {
		return nil, 0, err
	}
	if round, text, ok := h.state.takeEcho(now); ok {
		h.done.Go(func() { h.sendEcho(round, text) })
	}
	if cmd := h.state.next(now); cmd != nil {
		return cmd, 0, nil
	}
	return nil, h.state.untilNext(now), nil
}

// disconnected records the end of a connection, after its reader has ended. It returns the pause
// before the next connection.
func (h *Hub) disconnected(err error) (pause time.Duration) {
	good, closed := false, false
	h.update(func(r *hubState, now time.Time) bool {
		good, closed = r.onDisconnect(err, now), r.closed
		return false
	})
	if !closed {
		h.cfg.OnDisconnect(err)
	}
	if good {
		h.backoff.reset()
	}
	return h.backoff.next()
}

func (h *Hub) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-h.ctx.Done():
	}
}
