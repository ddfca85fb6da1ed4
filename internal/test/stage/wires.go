package stage

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
)

// Wires has the connections of one client, and their faults.
type Wires struct {
	Dead    atomic.Bool // nobody can be reached
	Deaf    atomic.Bool // new connections are black holes
	dialing atomic.Pointer[func()]
	reading atomic.Pointer[func(w *Wire, p []byte) (keep bool)]
	writing atomic.Pointer[func(w *Wire, p []byte) (pass bool)]

	mu   sync.Mutex
	open map[*Wire]struct{}
}

// OnDial, OnRead and OnWrite let f observe dials, received data and sent data. f may wait. Data
// that it does not want is swallowed. Nil ends that.
func (n *Wires) OnDial(f func()) { n.dialing.Store(&f) }

// OnRead lets f observe received data.
func (n *Wires) OnRead(f func(w *Wire, p []byte) bool) { n.reading.Store(&f) }

// OnWrite lets f observe sent data.
func (n *Wires) OnWrite(f func(w *Wire, p []byte) bool) { n.writing.Store(&f) }

func (n *Wires) dial(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	if f := n.dialing.Load(); f != nil && *f != nil && ctx.Err() == nil {
		(*f)()
	}
	if err := ctx.Err(); err != nil {
		return nil, err // like the dialers of package net
	}
	if n.Dead.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: net.ErrClosed}
	}
	c, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	w := &Wire{Conn: c, of: n}
	w.hole.Store(n.Deaf.Load())
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open == nil {
		n.open = map[*Wire]struct{}{}
	}
	n.open[w] = struct{}{}
	return w, nil
}

// Conns returns the open connections for which is returns true.
func (n *Wires) Conns(is func(*Wire) bool) (found []*Wire) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.open {
		if is(w) {
			found = append(found, w)
		}
	}
	return found
}

// Subscribers is the number of connections that have sent SUBSCRIBE.
func (n *Wires) Subscribers() int { return len(n.Conns((*Wire).Subscribes)) }

// Cut ends connections.
func (n *Wires) Cut(which func(*Wire) bool) {
	for _, w := range n.Conns(which) {
		_ = w.Close()
	}
}

// BlackHole swallows all data on connections in both directions, and leaves them open.
func (n *Wires) BlackHole(which func(*Wire) bool) {
	for _, w := range n.Conns(which) {
		w.hole.Store(true)
	}
}

// Wire is one connection.
type Wire struct {
	net.Conn
	of   *Wires
	sub  atomic.Bool // has sent SUBSCRIBE
	hole atomic.Bool
}

// Subscribes reports whether the connection has sent SUBSCRIBE.
func (w *Wire) Subscribes() bool { return w.sub.Load() }

// IsDead reports whether the connection swallows all data.
func (w *Wire) IsDead() bool { return w.hole.Load() }

func (w *Wire) Read(p []byte) (int, error) {
	for {
		n, err := w.Conn.Read(p)
		f := w.of.reading.Load()
		keep := f == nil || *f == nil || n == 0 || (*f)(w, p[:n])
		if keep && !w.hole.Load() || err != nil {
			return n, err
		}
	}
}

func (w *Wire) Write(p []byte) (int, error) {
	if IsSubscribe(p) {
		w.sub.Store(true)
	}
	f := w.of.writing.Load()
	if w.hole.Load() || f != nil && *f != nil && !(*f)(w, p) {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

func (w *Wire) Close() error {
	w.of.mu.Lock()
	delete(w.of.open, w)
	w.of.mu.Unlock()
	return w.Conn.Close()
}

// IsSubscribe reports whether p has a SUBSCRIBE.
func IsSubscribe(p []byte) bool { return bytes.Contains(p, []byte("\r\nsubscribe\r\n")) }
