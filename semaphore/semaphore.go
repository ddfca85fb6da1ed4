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

// Semaphore is a limit under one name. It is a cheap value without state of its own: make it where
// it is needed, and share it or not. Its methods may be called concurrently. Methods of a nil
// Semaphore, or of one that no client made, return a *lockerr.ConfigError.
type Semaphore struct {
	manager  *manager
	keys     *key.Semaphore
	limit    int
	settings *settings.Lock
	err      error // what is wrong with the name, the limit or the settings
}

func (m *manager) newSemaphore(name string, limit int, st *settings.Lock) *Semaphore {
	s := &Semaphore{manager: m, limit: limit, settings: st}
	if s.keys, s.err = m.keys.Get(name); s.err == nil {
		s.err = checkUnits("limit", limit)
	}
	if s.err == nil {
		s.err = s.settings.Complete()
	}
	return s
}

func checkUnits(what string, n int) error {
	if n < 1 || n > lua.MaxUnits {
		return &lockerr.ConfigError{Setting: what, Value: n, Reason: fmt.Sprintf("must be from 1 to %d", lua.MaxUnits)}
	}
	return nil
}

// Name returns the name of the semaphore, with the client's prefix.
func (s *Semaphore) Name() string {
	if s == nil || s.keys == nil {
		return ""
	}
	return s.keys.Name
}

// Acquire waits until it has n units, ctx ends, or the wait timeout is over
// (redlatch.WithWaitTimeout). It waits behind all requests that came before, of any process. ctx
// bounds the wait and nothing else. There is no re-entry: each Acquire takes units of its own. An
// Acquire that waits for units of its own caller waits for itself.
//
// A waiter sends heartbeats to show that it is alive. A waiter whose heartbeat ends is dropped.
// Crashed waiters delay the others until one heartbeat after the last crash, at most, or if all had
// crashed before, until one heartbeat after the next one came. If a worker crashes, its units
// become free when their lease ends. A waiter that lost its place queues again, with its old
// ticket.
//
// On success the client keeps the permit alive until Release. Do the work with the Context of the
// permit. On failure the caller holds nothing, and its place is given up. A grant that arrives late
// moves on to the next waiter immediately. Errors:
//   - lockerr.ErrNotAcquired, a *lockerr.NotAcquiredError, if ctx ended while too few units were
//     free. It says how many are in use, the limit, and the position. errors.Is also finds the end
//     of ctx. If an operator removed the waiter from the queue, the error also matches
//     lockerr.ErrRemoved.
//   - a *lockerr.LimitError, which is a lockerr.ErrConfig, immediately, if Redis has another limit,
//     or n is more than the limit is now.
//   - a *lockerr.ConfigError if n is below 1 or above the limit.
//   - lockerr.ErrUnavailable or ErrIndeterminate if the wait ended while Redis did not answer.
//     Without a wait timeout and without an end of ctx, Acquire waits through an outage.
//   - only the error of ctx, if it had ended before.
//   - lockerr.ErrNotReplicated, a *lockerr.NotReplicatedError, immediately if too few replicas
//     acknowledged the grant in time. Only redlatch.WithReplicas makes them do so.
//   - lockerr.ErrRefused immediately if Redis refuses, ErrClosed.
//
// If redlatch.WithWaitTimeout ends the wait, Acquire returns ErrNotAcquired, ErrUnavailable or
// ErrIndeterminate in the same cases. The error then matches no end of ctx. A wait deadline of ctx
// (redlatch.WithWaitDeadline) ends the wait in the same way. If it is over when the call begins,
// Acquire does not wait, and asks Redis once.
//
// If enough units are free, Acquire costs one round trip. A waiter asks once more when its
// client listens, and the first waiter of a client subscribes before that. After that it sends its
// heartbeats, a hundred waiters in one command. When a message arrives, it asks Redis once.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Permit, error) {
	w, err := s.newRequest(ctx, n, false)
	if err != nil {
		return nil, err
	}
	defer w.close()
	bounded, cancel := session.WaitContext(ctx, w.isTry, w.settings.WaitTimeout)
	defer cancel()
	wait := w.contend
	if session.LateRefusal(bounded) != nil {
		wait = w.try
	}
	h, err := wait(bounded)
	return w.newHandle(ctx, bounded, h, err)
}

// TryAcquire takes n units if so many are free and nobody waits. It does not wait, and never
// overtakes those who do. On failure the caller holds nothing. Errors are those of Acquire. The
// *lockerr.NotAcquiredError says how many units are in use, the limit, and how many requests wait.
//
// It costs one round trip, and more if very many expired waiters have to be dropped first, some
// hundreds in each. If Redis does not answer, TryAcquire keeps trying until ctx ends, but no longer
// than five seconds or the wait timeout, whichever is shorter, and no longer than a lease after a
// command that Redis may have run.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (*Permit, error) {
	w, err := s.newRequest(ctx, n, true)
	if err != nil {
		return nil, err
	}
	defer w.close()
	bounded, cancel := session.WaitContext(ctx, w.isTry, w.settings.WaitTimeout)
	defer cancel()
	h, err := w.try(bounded)
	return w.newHandle(ctx, bounded, h, err)
}

// Do runs fn with n units. It waits for them like [Semaphore.Acquire], calls fn, and releases
// them, also if fn panics.
//
// The context that fn gets is a child of ctx. It ends if the permit is lost, with a
// *lockerr.LostError as its cause. fn decides what to do then. ctx bounds the wait and fn. To bound
// only the wait, make the semaphore with redlatch.WithWaitTimeout. [Semaphore.PermitFrom] returns
// the permit, for instance to report progress.
//
// Do returns the error of Acquire, or that of fn. If the permit was lost while fn ran, the error
// also matches lockerr.ErrLost.
//
// After fn, Do waits until Redis confirms the release, but no longer than one command may take:
// normally two seconds at most. If no confirmation comes, Do returns what fn returned, because fn
// ran with the units. The client keeps trying in the background, and does not renew the permit. It
// notifies observers with event.Released, whose Err says why. Nested calls of Do wait at each
// level. A wait deadline (redlatch.WithWaitDeadline) shortens that wait. If Redis refuses the
// release, the error also matches lockerr.ErrRefused. If the client was closed, it also matches
// ErrClosed.
//
// Do costs two round trips if the units are free.
func (s *Semaphore) Do(ctx context.Context, n int, fn func(ctx context.Context) error) error {
	return lock.Do(ctx, holdOf(s.Acquire, n), fn)
}

// TryDo runs fn with n units if so many are free and nobody waits, and otherwise does not run it.
// It takes the units like [Semaphore.TryAcquire], and is like [Semaphore.Do] in all else.
//
// If fn did not run because too few units were free, the error is a *lockerr.NotAcquiredError for
// this name. fn may return such an error of another lock. TryDo costs two round trips if it runs
// fn, and one if it does not; see TryAcquire for more.
func (s *Semaphore) TryDo(ctx context.Context, n int, fn func(ctx context.Context) error) error {
	return lock.Do(ctx, holdOf(s.TryAcquire, n), fn)
}

// holdOf returns a function that acquires n units and returns the hold behind the permit.
func holdOf(acquire func(context.Context, int) (*Permit, error), n int) func(context.Context) (*lock.Hold, error) {
	return func(ctx context.Context) (*lock.Hold, error) {
		p, err := acquire(ctx, n)
		return p.holdOrNil(), err
	}
}

// PermitFrom returns the permit of this semaphore that ctx descends from: from the context of a
// permit, or from the one that Do gives its function. If there are several, PermitFrom returns the
// innermost. So the function of Do can call [Permit.ReportProgress].
//
// The permit may have ended meanwhile, see [Permit.Trusted]. The function must not release the
// permit of its caller. If ctx descends from no permit of this semaphore and this client, or the
// semaphore is not usable, the result is nil and false. PermitFrom sends no command to Redis.
func (s *Semaphore) PermitFrom(ctx context.Context) (*Permit, bool) {
	if s.check(ctx) != nil {
		return nil, false
	}
	search := acquisition.NewPermitSearch(s.manager.session, s.Name())
	h, found := ctx.Value(search).(*lock.Hold)
	if !found {
		return nil, false
	}
	return &Permit{hold: h, units: int(search.Found.A.Units)}, true
}

// check reports what is wrong with the semaphore or the context.
func (s *Semaphore) check(ctx context.Context) error {
	switch {
	case s == nil || s.manager == nil:
		return settings.ErrNoClient
	case s.err != nil:
		return s.err
	}
	return session.CheckContext(ctx)
}

// newRequest checks what can be checked before the client asks Redis. The result counts as a call
// of the client until close. The method that the user calls must call newRequest
// directly, because newRequest notes the caller of that method.
func (s *Semaphore) newRequest(ctx context.Context, n int, try bool) (*request, error) {
	err := s.check(ctx)
	if err == nil {
		err = checkUnits("number of units", n)
	}
	if err == nil && n > s.limit {
		err = &lockerr.ConfigError{Setting: "number of units", Value: n, Reason: fmt.Sprintf("must not be more than the limit of %d", s.limit)}
	}
	if err != nil {
		return nil, err
	}
	ss := s.manager.session
	by, ended := owner.FromContext(ctx), ctx.Err() != nil // before anything is counted: they may panic
	switch {
	case !ss.BeginRequest():
		return nil, &lockerr.OpError{Kind: lockerr.ErrClosed, Op: opAcquire, Name: s.keys.Name}
	case ended: // wins over free units: the caller has gone
		ss.EndRequest()
		return nil, &lockerr.OpError{Op: opAcquire, Name: s.keys.Name, Err: session.Cause(ctx)}
	}
	w := &request{Semaphore: s, session: ss, units: n, owner: by, callSite: acquisition.CallerSite(), isTry: try}
	w.observeBegin(ctx)
	return w, nil
}

// close ends what newRequest began.
func (r *request) close() {
	r.observeEnd(context.Background(), nil, acquisition.ErrAborted)
	r.session.EndRequest()
}
