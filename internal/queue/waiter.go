package queue

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/wake"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// Spec says who waits.
type Spec[B any] struct {
	Key       string        // what it waits for; for the watchdog
	Slot      int           // beats of one slot share a command
	Heartbeat time.Duration // how long Redis takes it for living without a beat
	Lease     time.Duration // what it is granted lasts no longer, unless it takes it
	Beat      B             // extends no grant
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
	flood  wake.Flood         // hints that proved false
	heed   time.Time          // hints count from then on

	// Guarded by desk.mu.
	sent   time.Time  // of the last beat that was answered "queued"
	at     time.Time  // when it was answered
	status lua.Status // Queued, Gone, Removed, TooMany; 0 until queued
	place  lua.Place
	hinted bool  // something may have changed: it is to ask
	lapsed bool  // no beat was answered for a heartbeat
	ticket int64 // in the queue; 0 until queued
	rank   int   // in desk.ranks, from 1; 0: not there
	left   bool  // it waits no more: no answer counts
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
	w.left = true
	delete(w.desk.waiters, w.id)
	w.desk.ranks.remove(w)
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

// keepAlive has the heartbeat kept, from a command on that was sent at that
// instant and answered "queued".
func (w *waiter[B]) keepAlive(sent time.Time) {
	if w.lease != nil {
		w.lease.Stop(atOnce())
	}
	h := w.spec.Heartbeat
	every := min(h, w.spec.Lease) / 3 // one that hears no messages learns of a grant while that lasts
	w.lease = w.desk.session.Watchdog.Watch(watchdog.Spec{
		Key: w.spec.Key, ID: w.id, Group: w.desk.kind.Group(w.spec.Slot),
		Lease: h, Margin: settings.Margin(h), Every: every, Renew: true, Sent: sent,
		Ended: func(watchdog.Reason) { w.change(func() { w.lapsed = true }) },
	})
}

// change changes the state and tells the goroutine that waits.
func (w *waiter[B]) change(f func()) {
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	f()
	w.wakeLocked()
}

// hint notes that something may have changed. It may come before the answer of the
// join, and is then heeded after it.
func (w *waiter[B]) hint() {
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	if w.hinted {
		return
	}
	w.hinted = true
	w.wakeLocked()
}

// wakeLocked tells the goroutine that waits, with desk.mu held.
func (w *waiter[B]) wakeLocked() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// heard takes the hint, before the question that it leads to: one that comes later
// counts anew. It reports whether there was one.
func (w *waiter[B]) heard() (hinted bool) {
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	hinted, w.hinted = w.hinted, false
	return hinted
}

// answered takes in what Redis said to a command that was sent at that instant, and
// tells it to the watchdog. "Granted" is a hint, too: a beat extends no grant, so that
// one whose waiter does not take it ends with the heartbeat. An answer to a waiter that
// has left changes nothing: nobody would remove that waiter from desk.ranks again.
func (w *waiter[B]) answered(r lua.BeatReply, sent time.Time) watchdog.Answer {
	answer := watchdog.Renewed
	w.change(func() {
		if w.left {
			answer = watchdog.Held
			return
		}
		switch r.Status {
		case lua.Granted:
			w.hinted = true
			w.desk.ranks.remove(w)
		case lua.Queued:
			if sent.After(w.sent) {
				w.sent, w.at, w.place, w.lapsed = sent, time.Now(), r.Place, false
			}
			if w.status == 0 || w.status == lua.Queued {
				w.status = lua.Queued
				w.desk.ranks.add(w)
			}
		case lua.Gone, lua.Removed, lua.TooMany:
			w.status, w.place, answer = r.Status, r.Place, watchdog.Gone
			w.desk.ranks.remove(w)
		default:
			answer = watchdog.Unknown
		}
	})
	return answer
}

type look struct {
	status lua.Status
	place  lua.Place
	at     time.Time // of the place
	hinted bool
	lapsed bool
}

func (w *waiter[B]) look() look {
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	return look{w.status, w.place, w.at, w.hinted, w.lapsed}
}
