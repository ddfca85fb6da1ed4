package redistest

import (
	"net"
	"sync"
	"time"
)

// outbox writes to a client in order, some things later than others, and never
// makes the sender wait. With a sender that waits, one subscriber that does not
// read would stop miniredis, which writes under its global lock.
type outbox struct {
	conn net.Conn
	done <-chan struct{}
	more chan struct{} // something was put; one token is enough

	mu    sync.Mutex
	items []parcel
}

// parcel is bytes to write not before due, or the end of the connection.
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

// run writes until the end of the connection.
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
	return err == nil // else the reader of the connection sees it end too
}

// pause waits for d, and says whether that was all it waited for.
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
