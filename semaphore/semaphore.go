package semaphore

import (
	"context"
	"fmt"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// Semaphore is a limit under one name. It is a cheap value without state of its
// own: make it where it is needed, and share it or not. Its methods may be called
// concurrently. Methods of a nil Semaphore, or of one that no client made, return a
// *lockerr.ConfigError.
type Semaphore struct {
	family   *Family
	keys     key.Semaphore
	limit    int
	settings settings.Lock
	err      error // what is wrong with the name, the limit or the settings
}

// Semaphore returns the semaphore of a name, of which the program says that this
// is the limit. What is wrong with either, or with the settings, is told by every
// use of it.
func (f *Family) Semaphore(name string, limit int, st settings.Lock) *Semaphore {
	s := &Semaphore{family: f, keys: key.ForSemaphore(name), limit: limit, settings: st}
	if s.err = key.CheckName(name); s.err == nil {
		s.err = checkUnits("limit", limit)
	}
	if s.err == nil {
		s.err = s.settings.Complete()
	}
	return s
}

func checkUnits(what string, n int) error {
	if n < 1 || n > lua.MaxUnits {
		return &lockerr.ConfigError{What: what, Value: n, Why: fmt.Sprintf("must be from 1 to %d", lua.MaxUnits)}
	}
	return nil
}

// Name is the name of the semaphore, with the client's prefix.
func (s *Semaphore) Name() string {
	if s == nil {
		return ""
	}
	return s.keys.Name
}

// Acquire waits until n units are this caller's, or ctx ends: behind all that came
// before, of whatever process. ctx bounds the wait and nothing else. There is no
// re-entry: each Acquire takes units of its own, and one that waits for units which
// its own caller has waits for itself.
//
// A waiter shows that it lives by heartbeats; who shows nothing for one is dropped,
// and all dead ones together delay the others by one heartbeat at most. The units
// of a worker that died come back with the end of their lease. A waiter that lost
// its place queues again, with its old ticket.
//
// On success the permit is kept alive until Release, and the work is to be done
// with its Context. On failure nothing is held, the place is given up, and a grant
// that arrives late moves on to the next at once. Errors:
//   - lockerr.ErrNotAcquired, a *lockerr.NotAcquiredError, when ctx ended while
//     too few units were free: it says how many are in use, the limit, and the
//     position; errors.Is finds the end of ctx too. The same with
//     lockerr.ErrRemoved when an operator took the waiter out of the queue.
//   - a *lockerr.LimitError, which is a lockerr.ErrConfig, when another limit is
//     known, or n is more than the limit is now: at once.
//   - a *lockerr.ConfigError when n is below 1 or above the limit.
//   - lockerr.ErrUnavailable or ErrIndeterminate when ctx ended while Redis did
//     not answer. Without such an end Acquire waits for Redis as it does for units.
//   - the error of ctx, and none of the others, when it had ended before.
//   - lockerr.ErrRefused at once when Redis will not do it, ErrClosed.
//
// When enough is free it costs one round trip. Who has to wait sends one command
// more, if nobody of the client was waiting before, then its heartbeats, a hundred
// waiters in one command, and one command when a message says that its turn has come.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Permit, error) {
	w, err := s.want(ctx, n)
	if err != nil {
		return nil, err
	}
	defer w.session.Leave()
	h, err := w.contend(ctx)
	return w.permit(ctx, h, err)
}

// TryAcquire takes n units if that needs no waiting: if so many are free and nobody
// waits. It never overtakes those who wait. On failure nothing is held. Errors are
// those of Acquire; the *lockerr.NotAcquiredError says how many units are in use,
// the limit, and how many wait.
//
// It costs one round trip, and more where very many dead waiters are to be dropped before
// it, some hundreds in each. When Redis does not answer, TryAcquire tries on until
// ctx ends, but no longer than a few seconds, or the lease if that is shorter.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (*Permit, error) {
	w, err := s.want(ctx, n)
	if err != nil {
		return nil, err
	}
	defer w.session.Leave()
	bounded, cancel := session.Shortly(ctx)
	defer cancel()
	h, err := w.try(bounded)
	return w.permit(ctx, h, err)
}

// Do runs fn with n units: it waits for them like [Semaphore.Acquire], calls fn, and
// gives them back, also when fn panics.
//
// The context that fn gets is a child of ctx that ends when the permit is lost,
// with a *lockerr.LostError as its cause; fn decides what to do about that.
//
// Do returns the error of Acquire, or that of fn. When the permit was lost while fn
// ran, or could not be released, the error also matches that (lockerr.ErrLost for
// the first). It costs two round trips when the units are free.
func (s *Semaphore) Do(ctx context.Context, n int, fn func(ctx context.Context) error) error {
	acquire := func(ctx context.Context) (*lock.Hold, error) {
		p, err := s.Acquire(ctx, n)
		if err != nil {
			return nil, err
		}
		return p.hold, nil
	}
	return lock.Do(ctx, acquire, fn)
}

// check reports what is wrong with the semaphore or the context.
func (s *Semaphore) check(ctx context.Context) error {
	switch {
	case s == nil || s.family == nil:
		return settings.ErrNoClient
	case s.err != nil:
		return s.err
	}
	return session.CheckContext(ctx)
}

// want checks what can be checked before Redis is asked, and counts as a call of
// the client until session.Leave. It is called by the method that the user calls,
// whose caller is noted.
func (s *Semaphore) want(ctx context.Context, n int) (*want, error) {
	err := s.check(ctx)
	if err == nil {
		err = checkUnits("number of units", n)
	}
	if err == nil && n > s.limit {
		err = &lockerr.ConfigError{What: "number of units", Value: n, Why: fmt.Sprintf("must not be more than the limit of %d", s.limit)}
	}
	if err != nil {
		return nil, err
	}
	ss := s.family.session
	by, ended := owner.From(ctx), ctx.Err() != nil // before anything is counted: they may panic
	switch {
	case !ss.Enter():
		return nil, &lockerr.OpError{Kind: lockerr.ErrClosed, Op: opAcquire, Name: s.keys.Name}
	case ended: // wins over free units: the caller has gone
		ss.Leave()
		return nil, &lockerr.OpError{Op: opAcquire, Name: s.keys.Name, Err: session.Cause(ctx)}
	}
	return &want{Semaphore: s, session: ss, units: n, owner: by, site: acquisition.Here()}, nil
}
