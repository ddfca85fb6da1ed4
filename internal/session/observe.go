package session

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/watchdog"
)

// observers notifies the observers of a client, in a goroutine of its own, one event after the
// other.
type observers struct {
	all         []event.Observer
	queue       callQueue[observed]
	panicLogged atomic.Bool
	dropLogged  atomic.Bool
	waits       atomic.Uint64 // that have begun

	mu       sync.Mutex
	counts   [event.Semaphore + 1]counts // by primitive
	dropping bool                        // the queue was full; events are dropped until it is empty
}

// observed is in the queue for each event.
type observed struct {
	ctx   context.Context //nolint:containedctx // that of the call which is still to be made
	event event.Event
}

// eventLinger is how late an event is at most because the goroutine lingers. A goroutine that locks
// and unlocks without a pause has about 150 events in this time. With a millisecond, the processors
// had to be woken so often that events cost 8 % of its time instead of 1 %.
const eventLinger = 10 * time.Millisecond

// ObserveAtOnce has the observers notified without eventLinger. It is for tests in virtual time,
// and must be called before the first event.
func (s *Session) ObserveAtOnce() { s.observers.queue.linger = 0 }

// counts are what the observers of one primitive should have counted.
type counts struct {
	waiting, held int
	dropped       int // events that the observers have not got, and do not know of
}

func (c *counts) add(e event.Event) {
	switch {
	case e.Kind == event.WaitBegan:
		c.waiting++
	case e.Kind == event.WaitEnded:
		c.waiting--
		if e.Result == event.Acquired && e.Source != event.Reentry {
			c.held++
		}
	case e.Kind == event.Released, e.Kind == event.Lost:
		c.held--
	}
}

// Observed reports whether the client has observers. The caller makes an event only if so: without
// observers, an event costs this check.
func (s *Session) Observed() bool { return len(s.observers.all) > 0 }

// NextWait returns the number of a wait that begins. Only a client with observers counts its waits.
func (s *Session) NextWait() uint64 { return s.observers.waits.Add(1) }

// Observe notifies the observers, soon and elsewhere. It does not block, so the caller may be
// anywhere. Observers get the values of ctx. If they are too slow, they get the number of the
// events that they missed, and what they would have counted.
func (s *Session) Observe(ctx context.Context, e event.Event) {
	if s.Observed() {
		s.enqueueEvent(ctx, e)
	}
}

func (s *Session) enqueueEvent(ctx context.Context, e event.Event) {
	e.Time, e.Client = time.Now(), s.ID
	o := &s.observers
	o.mu.Lock()
	defer o.mu.Unlock()
	c := &o.counts[e.Primitive]
	c.add(e)
	if o.dropping || !o.queue.add(observed{ctx, e}) {
		o.dropping = true
		c.dropped++
		if o.dropLogged.CompareAndSwap(false, true) {
			s.Write(slog.LevelWarn, "redlatch: an observer is too slow; events are dropped")
		}
	}
}

// notifyObservers is the call that the queue makes for each event.
func (s *Session) notifyObservers(o observed) {
	defer s.reportDropped()
	s.observeFrom(0, context.WithoutCancel(o.ctx), o.event) // the call of the program has perhaps ended
}

// observeFrom notifies the observers from the i-th on, even if one of them ends the goroutine.
func (s *Session) observeFrom(i int, ctx context.Context, e event.Event) { //nolint:revive // ctx is that of the event
	if i < len(s.observers.all) {
		defer s.observeFrom(i+1, ctx, e)
		s.notifyObserver(ctx, s.observers.all[i], e)
	}
}

// reportDropped notifies the observers of dropped events when they have got all that were not
// dropped. So the counts are those of this moment.
func (s *Session) reportDropped() {
	var reports []event.Event
	o := &s.observers
	o.mu.Lock()
	if o.dropping && o.queue.isEmpty() {
		o.dropping = false
		for p := range o.counts {
			if c := &o.counts[p]; c.dropped > 0 {
				reports = append(reports, event.Event{
					Kind: event.Dropped, Time: time.Now(), Client: s.ID, Primitive: event.Primitive(p), //nolint:gosec // an index of the array
					Count: c.dropped, Waiting: c.waiting, Held: c.held,
				})
				c.dropped = 0
			}
		}
	}
	o.mu.Unlock()
	for _, e := range slices.Backward(reports) {
		defer s.observeFrom(0, context.Background(), e)
	}
}

// notifyObserver notifies one observer. A panic of it harms nobody.
func (s *Session) notifyObserver(ctx context.Context, o event.Observer, e event.Event) {
	defer func() {
		if p := recover(); p != nil && s.observers.panicLogged.CompareAndSwap(false, true) {
			s.Write(slog.LevelError, "redlatch: an observer panicked",
				slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
		}
	}()
	o.Observe(ctx, e)
}

// renewObserved is renew, and notifies the observers. The heartbeats of waiters are no renewals.
func (s *Session) renewObserved(ctx context.Context, group watchdog.Group, batch []watchdog.Renewal) ([]watchdog.Result, error) {
	began := time.Now()
	answers, err := s.renew(ctx, group, batch)
	if kind := LeaseKind(group.Kind); s.Observed() && (kind == Holds || kind == Permits) {
		s.observeRenewals(ctx, kind, len(batch), answers, err, time.Since(began))
	}
	return answers, err
}

// observeRenewals counts the leases by their results.
func (s *Session) observeRenewals(ctx context.Context, kind LeaseKind, leases int, answers []watchdog.Result, err error, took time.Duration) {
	counts := map[event.Result]int{event.Failed: leases - len(answers)}
	for _, a := range answers {
		counts[renewalResults[a]]++
	}
	for result, n := range counts {
		e := event.Event{Kind: event.Renewed, Result: result, Duration: took, Count: n}
		if kind == Permits {
			e.Primitive = event.Semaphore
		}
		if result == event.Failed {
			e.Err = err
		}
		if n > 0 {
			s.Observe(ctx, e)
		}
	}
}

var renewalResults = map[watchdog.Result]event.Result{
	watchdog.Renewed: event.Extended, watchdog.Held: event.Checked, watchdog.Gone: event.Gone, watchdog.Unknown: event.Failed,
}
