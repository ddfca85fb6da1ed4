package queue

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/wake"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// Spec says who waits.
type Spec[B any] struct {
	Key       string        // what it waits for; for the watchdog
	Slot      int           // beats of one slot share a command
	Heartbeat time.Duration // how long Redis takes it for living without a beat
	Beat      B
}

// waiter is one that waits, or is about to. Its methods are for one goroutine.
type waiter[B any] struct {
	desk *Desk[B]
	id   string // of the acquisition that it will become
	by   Contender[B]
	spec Spec[B]
	news chan struct{} // capacity 1: something below has changed

	// Of the goroutine that waits.
	lease  *watchdog.Lease    // the heartbeat; nil until queued
	ear    *wake.Subscription // nil until queued
	before *wake.Subscription // which was live before a place was asked for; nil: none

	// Guarded by desk.mu.
	sent   time.Time  // of the last beat that was answered "queued"
	at     time.Time  // when it was answered
	status lua.Status // Queued, Granted, Gone, Removed
	grant  Grant
	place  lua.Place
	lapsed bool // no beat was answered for a heartbeat
}

// enter announces a waiter, before it asks for a place: from now on a message for
// it finds it. leave ends it.
func (d *Desk[B]) enter(id string, c Contender[B]) *waiter[B] {
	w := &waiter[B]{desk: d, id: id, by: c, spec: c.Spec(id), news: make(chan struct{}, 1)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiters[id] = w
	if d.ear != nil && d.ear.Live() {
		w.before = d.ear
	}
	return w
}

// leave ends the waiting here; what stands in Redis is the contender's to give up. A
// beat that is under way finds the waiter gone.
func (w *waiter[B]) leave() {
	w.desk.mu.Lock()
	delete(w.desk.waiters, w.id)
	w.desk.mu.Unlock()
	if w.lease != nil {
		w.lease.Stop(atOnce())
	}
	if w.ear != nil {
		w.desk.unlisten()
	}
}

// atOnce is for a Stop that does not wait: a beat that is under way does no harm.
func atOnce() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// margin is the distance that trust keeps from the end of the heartbeat.
func (w *waiter[B]) margin() time.Duration {
	return min(max(w.spec.Heartbeat/10, 10*time.Millisecond), time.Second)
}

// keepAlive has the heartbeat kept, from a command on that was sent at that
// instant and answered "queued".
func (w *waiter[B]) keepAlive(sent time.Time) {
	if w.lease != nil {
		w.lease.Stop(atOnce())
	}
	h := w.spec.Heartbeat
	w.lease = w.desk.session.Watchdog.Watch(watchdog.Spec{
		Key: w.spec.Key, ID: w.id, Group: w.desk.kind.Group(w.spec.Slot),
		Lease: h, Margin: w.margin(), Every: h / 3, Renew: true, Sent: sent,
		Ended: func(watchdog.Reason) { w.change(func() { w.lapsed = true }) },
	})
}

// change changes the state and tells the goroutine that waits.
func (w *waiter[B]) change(f func()) {
	w.desk.mu.Lock()
	f()
	w.desk.mu.Unlock()
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// told is the message that it was granted. It may overtake the answer that says
// "queued": then the trust it brings counts from that one.
func (w *waiter[B]) told(fence int64) {
	w.change(func() {
		if w.status == 0 || w.status == lua.Queued {
			w.status = lua.Granted
			w.grant = Grant{Fence: fence, Sent: w.sent, First: w.spec.Heartbeat - w.margin()}
		}
	})
}

// removed is the message that an operator took it out of the queue.
func (w *waiter[B]) removed() {
	w.change(func() {
		if w.status == 0 || w.status == lua.Queued {
			w.status = lua.Removed
		}
	})
}

// answered takes in what a beat, sent at that instant, said; and tells it to the
// watchdog. A grant of the whole lease is worth more than one that a message
// brought, and the server's word that there is nothing ends both.
func (w *waiter[B]) answered(r lua.BeatReply, sent time.Time) watchdog.Answer {
	answer := watchdog.Renewed
	w.change(func() {
		switch r.Status {
		case lua.Granted:
			w.status, w.grant = lua.Granted, Grant{Fence: r.Fence, Sent: sent}
		case lua.Queued:
			if sent.After(w.sent) {
				w.sent, w.at, w.place, w.lapsed = sent, time.Now(), r.Place, false
			}
			switch {
			case w.status == 0:
				w.status = lua.Queued
			case w.status == lua.Granted && w.grant.Sent.IsZero():
				w.grant.Sent = sent
			}
		case lua.Gone, lua.Removed:
			w.status, answer = r.Status, watchdog.Gone
		default:
			answer = watchdog.Unknown
		}
	})
	return answer
}

type look struct {
	status lua.Status
	grant  Grant
	place  lua.Place
	at     time.Time // of the place
	lapsed bool
}

func (w *waiter[B]) look() look {
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	return look{w.status, w.grant, w.place, w.at, w.lapsed}
}
