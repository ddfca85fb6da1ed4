package redistest

import (
	"net"
	"sync"
	"time"
)

// outbox writes to a client in order, some items later than others, and never makes the sender
// wait. If the sender waited, one subscriber that does not read would stop miniredis, which writes
// under its global lock.
type outbox struct {
	conn net.Conn
	done <-chan struct{}
	more chan struct{} // signals a put; one token is enough

	mu    sync.Mutex
	items []parcel
}

// parcel has bytes to write, but not before due, or ends the connection.
type parcel struct {
	bytes []byte
	due   time.Time
	end   func()
}

func newOutbox(conn net.Conn, done <-chan struct{}) *outbox {
	return &outbox{conn: conn, done: done, more: make(chan struct{}, 1)}
}

func (o *outbox) put(p parcel) {
	o.mu.Lock()
	o.items = append(o.items, p)
	o.mu.Unlock()
	select {
	case o.more <- struct{}{}:
	default:
	}
}

// run writes until the connection ends.
func (o *outbox) run() {
	for {
		select {
		case <-o.more:
		case <-o.done:
			return
		}
		for _, p := range o.take() {
			if !o.deliver(p) {
				return
			}
		}
	}
}

func (o *outbox) take() []parcel {
	o.mu.Lock()
	defer o.mu.Unlock()
	items := o.items
	o.items = nil
	return items
}

func (o *outbox) deliver(p parcel) bool {
	if !pause(time.Until(p.due), o.done) {
		return false
	}
	if p.end != nil {
		p.end()
		return false
	}
	_, err := o.conn.Write(p.bytes)
	return err == nil // else the reader of the connection gets the end too
}

// pause waits for d. It returns false if done was closed earlier.
func pause(d time.Duration, done <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}
