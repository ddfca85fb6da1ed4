package waitqueue

import (
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// Spec describes a waiter.
type Spec[B any] struct {
	Key           string        // the lock or semaphore, for the watchdog
	Heartbeat     time.Duration // the heartbeat timeout
	Lease         time.Duration // the lease of the grant
	HeartbeatArgs B             // the content of a heartbeat
	Channel       string        // gets a message if somebody without a place in the queue frees Key; empty: none does
}

// waiter is a request that waits, or is about to. One goroutine waits. Other goroutines pass
// messages and the answers of heartbeats to it.
type waiter[B any] struct {
	set     *WaiterSet[B]
	id      string // of the acquisition that the waiter may become
	request Request[B]
	spec    Spec[B]
	changed chan struct{} // capacity 1: a guarded field has changed

	// Used only by the goroutine that waits.
	lease     *watchdog.Lease      // the heartbeat; nil until queued
	channels  []string             // to which the waiter is subscribed; none until queued
	sub       *pubsub.Subscription // to the last of them
	slotKnown <-chan struct{}      // closed when the client knows which channels it needs; nil: it did, or the waiter has looked
	settled   <-chan struct{}      // closed when the subscription is confirmed; nil: it was when the waiter last asked
	liveSub   *pubsub.Subscription // the subscription that was live before the join; nil: none
	throttle  pubsub.Throttle      // hints that proved false
	hintsFrom time.Time            // the waiter ignores hints before this time

	// Guarded by WaiterSet.mu.
	sent           time.Time  // when the last command was sent that Redis answered with "queued"
	updatedAt      time.Time  // when Redis answered it
	status         lua.Status // Queued, Gone, Removed, OverLimit; 0 until queued
	queueState     lua.QueueState
	hinted         bool  // something may have changed, so the waiter must ask
	freed          bool  // the hint came from spec.Channel
	heartbeatEnded bool  // Redis answered no heartbeat in time
	gaps           int   // WaiterSet.gaps when the last join or claim was sent
	ticket         int64 // in the queue; 0 until queued
	rank           int   // index in the heap of WaiterSet.ranks, plus one; 0: not there
	stopped        bool  // answers count no more
}

// addWaiter adds a waiter before it asks for a place, so that a message from then on finds it. stop
// removes it.
func (s *WaiterSet[B]) addWaiter(id string, c Request[B]) *waiter[B] {
	w := &waiter[B]{set: s, id: id, request: c, spec: c.Spec(id), changed: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters[id] = w
	w.gaps = s.gaps
	if sub := s.subs[s.channelOf(w)]; sub != nil && sub.Live() {
		w.liveSub = sub.Subscription
	}
	return w
}

// stop removes the waiter from the waiter set, and ends its heartbeats. The request gives up the
// place in Redis. The answer to a heartbeat in flight then changes nothing. stop does not wait for
// it.
func (w *waiter[B]) stop() {
	w.set.mu.Lock()
	w.stopped = true
	delete(w.set.waiters, w.id)
	w.set.ranks.remove(w)
	w.set.mu.Unlock()
	if w.lease != nil {
		w.lease.BeginStop()
	}
	for _, channel := range w.channels {
		w.set.releaseSub(channel)
	}
}

// startHeartbeat starts the heartbeats of a waiter, or starts them anew. sent is when the command
// was sent that Redis answered with "queued". The waiter asks again if messages may have been lost
// since then, because the watchdog perhaps did not know it. Redis may have queued the waiter, and
// may have sent its grant, before the waiter has the answer of its join.
func (w *waiter[B]) startHeartbeat(sent time.Time) {
	if w.lease != nil {
		w.lease.BeginStop()
	}
	h := w.spec.Heartbeat
	every := min(h, w.spec.Lease) / 3 // one that hears no messages learns of a grant while that lasts
	w.lease = w.set.session.Watchdog.Watch(watchdog.Spec{
		Key: w.spec.Key, ID: w.id, Group: w.set.session.Group(w.set.kind, w.spec.Key),
		Lease: h, Margin: settings.Margin(h), Interval: every, Renew: true, Sent: sent,
		OnLost: watchdog.LossFunc(func(watchdog.Reason) { w.update(func() { w.heartbeatEnded = true }) }),
	})
	if w.set.hadGap(w) {
		w.hint()
	}
}

// update changes the state with f, and notifies the goroutine that waits.
func (w *waiter[B]) update(f func()) {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	f()
	w.signalLocked()
}

// hint records that something may have changed, and notifies the goroutine that waits. If the hint
// comes before the answer of the join, the waiter uses it after that answer.
func (w *waiter[B]) hint() {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	if w.hinted {
		return
	}
	w.hinted = true
	w.signalLocked()
}

// signalLocked notifies the goroutine that waits. The caller holds set.mu.
func (w *waiter[B]) signalLocked() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// takeHint clears the hint, and reports whether there was one. The waiter calls it before it asks,
// so that a later hint or gap makes it ask again.
func (w *waiter[B]) takeHint() (hinted bool) {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	hinted, w.hinted, w.freed, w.gaps = w.hinted, false, false, w.set.gaps
	return hinted
}

// apply handles the answer to a command that was sent at sent, and returns the result for the
// watchdog. "Granted" is only a hint, because a heartbeat does not extend a grant. If the waiter
// does not take the grant over, the grant ends with its first lease. After stop, apply changes
// nothing, because nobody would remove the waiter from WaiterSet.ranks again.
func (w *waiter[B]) apply(r lua.HeartbeatReply, sent time.Time) watchdog.Result {
	answer := watchdog.Renewed
	w.update(func() {
		if w.stopped {
			answer = watchdog.Held
			return
		}
		switch r.Status {
		case lua.Granted:
			w.hinted = true
			w.set.ranks.remove(w)
		case lua.Queued:
			if sent.After(w.sent) {
				w.sent, w.updatedAt, w.queueState, w.heartbeatEnded = sent, time.Now(), r.QueueState, false
			}
			if w.status == 0 || w.status == lua.Queued {
				w.status = lua.Queued
				w.set.ranks.add(w)
			}
		case lua.Gone, lua.Removed, lua.OverLimit:
			w.status, w.queueState, answer = r.Status, r.QueueState, watchdog.Gone
			w.set.ranks.remove(w)
		default:
			answer = watchdog.Unknown
		}
	})
	return answer
}

// snapshot is a copy of the guarded fields that the goroutine that waits needs.
type snapshot struct {
	status         lua.Status
	queueState     lua.QueueState
	updatedAt      time.Time // when Redis answered with this state
	hinted, freed  bool
	heartbeatEnded bool
}

func (w *waiter[B]) snapshot() snapshot {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	return snapshot{w.status, w.queueState, w.updatedAt, w.hinted, w.freed, w.heartbeatEnded}
}
