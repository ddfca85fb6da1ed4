package session

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/watchdog"
)

// observers notifies the observers of a client.
type observers struct {
	all         []event.Observer
	queue       callQueue // of events that Later takes
	panicLogged atomic.Bool
	dropLogged  atomic.Bool
}

// Observed reports whether the client has observers. The caller makes an event only if so: without
// observers, an event costs this check.
func (s *Session) Observed() bool { return len(s.observers.all) > 0 }

// Observe notifies the observers in the goroutine of the caller, which waits for them. The caller must
// not have a mutex locked, nor do work that others wait for. It is for events of waits and holds,
// which observers count up and down.
func (s *Session) Observe(ctx context.Context, e event.Event) {
	for _, o := range s.observers.all {
		s.observe(ctx, o, e)
	}
}

// ObserveLater notifies the observers in a goroutine for all such events, one after the other. It does not
// block, so the caller may be anywhere. If the observers are too slow, the event is dropped.
func (s *Session) ObserveLater(e event.Event) {
	if s.Observed() && !s.observers.queue.add(func() { s.Observe(context.Background(), e) }) && s.observers.dropLogged.CompareAndSwap(false, true) {
		s.Write(slog.LevelWarn, "redlatch: an observer is too slow; events are dropped")
	}
}

// observe notifies one observer. A panic must not reach the caller, which has a hold to return.
func (s *Session) observe(ctx context.Context, o event.Observer, e event.Event) {
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
		s.observeRenewals(kind, len(batch), answers, err, time.Since(began))
	}
	return answers, err
}

// observeRenewals counts the leases by their results.
func (s *Session) observeRenewals(kind LeaseKind, leases int, answers []watchdog.Result, err error, took time.Duration) {
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
			s.ObserveLater(e)
		}
	}
}

var renewalResults = map[watchdog.Result]event.Result{
	watchdog.Renewed: event.Extended, watchdog.Held: event.Checked, watchdog.Gone: event.Gone, watchdog.Unknown: event.Failed,
}
