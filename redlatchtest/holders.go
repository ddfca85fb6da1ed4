package redlatchtest

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/testhook"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// operatorTimeout bounds the commands of the server's own clients, which no fault affects.
const operatorTimeout = 10 * time.Second

// HoldElsewhere acquires a lock as another process would. It holds the lock until release is
// called, or until the test ends. Mutex and FairMutex of the name are both held. The other process
// has the options of New except WithObserver, WithMaxHold and WithProgressTimeout, and its watchdog
// renews the lease, unless one of the options is WithoutRenewal. Its description in errors is
// "another process".
//
// release hands the lock to the next waiter, as Unlock does. Further calls of release do nothing.
// The lock may also be lost before (Lose, Advance).
//
// If somebody holds the lock already, or waits for it in a queue, HoldElsewhere ends the test.
func (s *Server) HoldElsewhere(name string) (release func()) {
	s.t.Helper()
	ctx, cancel := operatorContext()
	defer cancel()
	hold, err := s.elsewhere.Mutex(name).TryLock(ctx)
	if err != nil {
		s.t.Fatalf("redlatchtest: HoldElsewhere: %v", err)
	}
	return s.keep(hold, hold.Unlock)
}

// AcquireElsewhere is HoldElsewhere for units of a semaphore. The limit is the one that the program
// passes to Client.Semaphore. If so many units are not free, AcquireElsewhere ends the test.
func (s *Server) AcquireElsewhere(name string, limit, units int) (release func()) {
	s.t.Helper()
	ctx, cancel := operatorContext()
	defer cancel()
	permit, err := s.elsewhere.Semaphore(name, limit).TryAcquire(ctx, units)
	if err != nil {
		s.t.Fatalf("redlatchtest: AcquireElsewhere: %v", err)
	}
	return s.keep(permit, permit.Release)
}

// keep keeps a hold from becoming garbage, and returns the function that releases it.
func (s *Server) keep(hold any, unlock func(context.Context) error) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, hold)
	var once sync.Once
	return func() {
		s.t.Helper()
		once.Do(func() {
			ctx, cancel := operatorContext()
			defer cancel()
			err := unlock(ctx)
			if err != nil && !errors.Is(err, redlatch.ErrLost) && !errors.Is(err, redlatch.ErrClosed) {
				s.t.Errorf("redlatchtest: release: %v", err)
			}
		})
	}
}

// Lose takes a lock away from whoever holds it, as an operator does with ForceRelease. A failover
// or a FLUSHALL has the same result. For a semaphore, Lose takes all of its permits away. If a
// mutex and a semaphore have the same name, both are lost.
//
// When Lose returns, each holder of Client and of the clients of NewClient is notified: Lost is
// closed, and the context of the hold has ended with an error that matches redlatch.ErrLost. In
// production the holder finds out at its next renewal. While the server is down, that is so here
// too. The lock is free then, or the next waiter has it.
//
// Lose may be called in any goroutine, for instance by time.AfterFunc. The test does not end before
// Lose has returned. If Lose has to end the test, call it in the goroutine of the test, as for
// testing.T.FailNow.
//
// If nobody holds a lock or a permit of the name, and Redis keeps no lock of the name
// (UnlockAfter), Lose ends the test.
func (s *Server) Lose(name string) {
	s.t.Helper()
	s.losing.RLock()
	defer s.losing.RUnlock()
	ctx, cancel := operatorContext()
	defer cancel()
	lost, err := s.operator.FairMutex(s.Client.Mutex(name).Name()).ForceRelease(ctx, "")
	if err != nil {
		s.t.Fatalf("redlatchtest: Lose: %v", err)
	}
	if s.losePermits(ctx, name) == 0 && lost == "" {
		s.t.Fatalf("redlatchtest: Lose: nobody holds %q", name)
	}
	s.notifyLost(ctx)
}

func (s *Server) losePermits(ctx context.Context, name string) (lost int) {
	s.t.Helper()
	permits := s.operator.Semaphore(s.Client.Semaphore(name, 1).Name(), 1)
	ids := s.permits(ctx, permits.Name())
	for id := range ids {
		if _, err := permits.ForceRelease(ctx, id); err != nil {
			s.t.Fatalf("redlatchtest: Lose: %v", err)
		}
	}
	return len(ids)
}

// permits returns the ids of all permits of a semaphore, of which Inspect shows only some.
func (s *Server) permits(ctx context.Context, name string) map[string]bool {
	s.t.Helper()
	reply, err := lua.InspectPermits(ctx, s.direct, lua.SemaphoreKeys(key.ForSemaphore(name).Args), math.MaxInt32)
	if err != nil {
		s.t.Fatalf("redlatchtest: %v", err)
	}
	ids := map[string]bool{}
	for _, held := range reply.Held {
		ids[held.Acquisition] = true
	}
	return ids
}

// Advance moves the clock of the server ahead by d, and not the clock of the program. It is as if
// somebody set the clock of the machine that Redis runs on. All leases end that had less than d
// left, as if their holders had crashed. The holder of HoldElsewhere is one of them.
//
// A holder of Client or of the clients of NewClient whose lease ended is notified when Advance
// returns, as by Lose. The watchdogs begin to renew all other leases, and all waiters ask again.
// Before another Advance, let them finish: in a bubble, call synctest.Wait. Otherwise the second
// Advance may end leases that were about to be renewed. While the server is down, clients find out
// later, as in production.
//
// Inside a bubble of testing/synctest, use time.Sleep if time should pass for everybody. Live
// holders then keep their locks. d must not be negative.
func (s *Server) Advance(d time.Duration) {
	s.t.Helper()
	if d < 0 {
		s.t.Fatalf("redlatchtest: Advance by %v: the clock only goes ahead", d)
	}
	s.losing.RLock()
	defer s.losing.RUnlock()
	s.clock.advance(d)
	ctx, cancel := operatorContext()
	defer cancel()
	s.notifyLost(ctx)
	for _, c := range s.allClients() {
		testhook.Of(c).Session.Watchdog.RenewNow(func(watchdog.Group) bool { return true })
	}
	// Waiters of a plain mutex renew nothing. A message makes them ask.
	for _, channel := range s.program.Server.PubSubChannels("redisson_lock__channel:*") {
		s.program.Server.Publish(channel, "0")
	}
}

// notifyLost does what the watchdog of each client would do after its next renewal: it notifies the
// holders of what Redis no longer has.
func (s *Server) notifyLost(ctx context.Context) {
	s.t.Helper()
	if s.isDown() {
		return
	}
	for _, c := range s.allClients() {
		held, permits := testhook.Of(c).Held(), map[string]map[string]bool{} // Redis granted what Held lists before permits is read
		for _, a := range held {
			if a.IsPermit() && permits[a.Name] == nil {
				permits[a.Name] = s.permits(ctx, a.Name)
			}
			if a.IsPermit() && !permits[a.Name][a.ID] || !a.IsPermit() && s.holderOf(ctx, a.Name) != a.ID {
				a.LoseNow()
			}
		}
	}
}

// holderOf returns the acquisition that has a mutex.
func (s *Server) holderOf(ctx context.Context, name string) string {
	s.t.Helper()
	info, err := s.operator.Mutex(name).Inspect(ctx)
	if err != nil {
		s.t.Fatalf("redlatchtest: %v", err)
	}
	return info.Holder
}

func operatorContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), operatorTimeout)
}
