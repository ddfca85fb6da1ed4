package acquisition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lockerr"
)

// NewHandle makes the user's handle of a hold, a *lock.Hold. Package lock sets it and does not
// export it, so that its page shows only what programs use. ctx is that of the call that acquired
// the lock.
var NewHandle func(ctx context.Context, h *Hold) any

// Hold is one of the holds of an acquisition, behind the handle that the user has. It must not
// refer to that handle: the client notices a forgotten hold because its handle becomes garbage.
type Hold struct {
	A        *Acquisition
	callSite *CallSite

	// Guarded by A.mu.
	released      bool
	unlockPending bool          // an Unlock gave up, and the background finishes it
	notified      bool          // it ended without an Unlock
	exported      bool          // it ends, or ended, by an Export
	cause         error         // why its contexts ended; nil while it is held
	lost          chan struct{} // closed when notified becomes true; made by Lost
	contexts      *heldContext  // the first of those that end with the hold
}

// heldContext is a context that ends with its hold. It is in a list, so that the hold can forget
// it.
type heldContext struct {
	cancel     context.CancelCauseFunc
	prev, next *heldContext // guarded by Acquisition.mu
}

// errUnlockedInBackground says that the background has finished an Unlock that had given up.
var errUnlockedInBackground = errors.New("released in the background")

// errReleased matches the cause with which the contexts of released holds end.
var errReleased = errors.New("redlatch: released")

// errClosedFirst says in errors that Close came before the release.
var errClosedFirst = errors.New("Close has ended the hold")

// errExported says in errors that the lock goes on elsewhere.
var errExported = errors.New("exported; attach its text to go on with the lock")

// releasedError is the cause with which the contexts of a released hold end. It says whose
// release it was.
type releasedError struct {
	id         string       // of the acquisition
	owner      *owner.Owner // of a lock; a permit has none
	isExported bool
}

func (e *releasedError) Error() string {
	if e.isExported {
		return "redlatch: " + errExported.Error()
	}
	return errReleased.Error()
}
func (*releasedError) Unwrap() error { return errReleased }

// contextCause returns the cause with which contexts of the hold end. If the hold was released,
// that is a releasedError. It is made only for contexts, because few holds have one. It does not
// refer to the acquisition, because a program may keep it.
func (h *Hold) contextCause() error {
	if h.cause != errReleased { //nolint:errorlint // this very value
		return h.cause
	}
	by := &releasedError{id: h.A.ID, isExported: h.exported}
	if !h.A.IsPermit() {
		by.owner = h.A.Owner
	}
	return by
}

// IsOwnEnd reports whether a context with that cause ended because this acquisition was released,
// or a lock under whose context it was acquired. Any other end is that of the caller's context,
// also if the caller cancels it with an error that wraps such a cause.
func (a *Acquisition) IsOwnEnd(cause error) bool {
	by, ok := cause.(*releasedError) //nolint:errorlint // a wrapped one belongs to somebody else
	if !ok || by.id == a.ID {
		return ok
	}
	isOuter := a.IsPermit() || by.owner != a.Owner // two locks of one WithOwner are not nested
	return by.owner != nil && isOuter && a.Owner.Includes(by.owner)
}

// newHold adds an open hold. The caller holds a.mu, or a is not shared yet.
func (a *Acquisition) newHold(site *CallSite) *Hold {
	h := &a.first
	if h.A != nil {
		h = &Hold{}
	}
	h.A, h.callSite = a, site
	if a.open == nil {
		a.open = a.firstOpen[:0]
	}
	a.open = append(a.open, h)
	return h
}

// Derive returns a child of parent that re-enters the lock. The child ends when the hold does, with
// a cause. It needs no goroutine.
func (h *Hold) Derive(parent context.Context) context.Context {
	ctx, _ := h.deriveContext(parent)
	return ctx
}

// Bind is Derive for a hold that may have very many children. The hold forgets a child when cancel
// is called or parent ends.
func (h *Hold) Bind(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, c := h.deriveContext(parent)
	stop := context.AfterFunc(ctx, func() { h.forget(c) })
	return ctx, func() {
		stop()
		h.forget(c)
		c.cancel(nil)
	}
}

func (h *Hold) deriveContext(parent context.Context) (context.Context, *heldContext) {
	ctx, cancel := context.WithCancelCause(owner.ContextFor(parent, h.A.Owner))
	c := &heldContext{cancel: cancel}
	h.A.mu.Lock()
	defer h.A.mu.Unlock()
	if h.cause != nil {
		cancel(h.contextCause())
		return ctx, c
	}
	if c.next = h.contexts; c.next != nil {
		c.next.prev = c
	}
	h.contexts = c
	return ctx, c
}

// forget takes a context out of the list, if it is there.
func (h *Hold) forget(c *heldContext) {
	h.A.mu.Lock()
	defer h.A.mu.Unlock()
	if c.next != nil {
		c.next.prev = c.prev
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else if h.contexts == c {
		h.contexts = c.next
	}
	c.prev, c.next = nil, nil
}

// IsOnPath reports whether a context re-enters the lock by this acquisition.
func (h *Hold) IsOnPath(ctx context.Context) bool { return owner.FromContext(ctx).Includes(h.A.Owner) }

// Lost returns a channel that is closed when the hold ends without an Unlock.
func (h *Hold) Lost() <-chan struct{} {
	h.A.mu.Lock()
	defer h.A.mu.Unlock()
	if h.lost == nil {
		h.lost = make(chan struct{})
		if h.notified {
			close(h.lost)
		}
	}
	return h.lost
}

// Unlock releases the hold, and with the last hold the lock.
func (h *Hold) Unlock(ctx context.Context) (err error) {
	if err := session.CheckContext(ctx); err != nil {
		return err
	}
	return h.release(ctx, unlocking{})
}

// UnlockBriefly is Unlock, but waits only for the time of one command, and no longer than the wait
// deadline of ctx allows. After that the background goes on. If other holds are left, the last of
// them frees the lock, so UnlockBriefly sends their number only once, and does not fail if Redis
// does not take it.
func (h *Hold) UnlockBriefly(ctx context.Context) error {
	d := session.ReleaseTime(ctx, h.A.attemptTime())
	if ctx.Err() != nil {
		return h.releaseWithin(session.DetachedWithTimeout(ctx, d), unlocking{brief: true})
	}
	return h.releaseWithin(session.WithDeadlineReasonWithoutOwnCancel(ctx, h.A, time.Now().Add(d), "gave up after "+d.String()), unlocking{brief: true})
}

// unlocking says how a hold is released.
type unlocking struct {
	exportFor time.Duration // how long Redis keeps the lock for an Export; 0: it is none
	after     bool          // it is an UnlockAfter
	brief     bool          // see UnlockBriefly
}

// release is Unlock, after the checks.
func (h *Hold) release(ctx context.Context, how unlocking) error {
	return h.releaseWithin(h.A.unlockContext(ctx), how)
}

// releaseWithin is release until bounded ends.
func (h *Hold) releaseWithin(bounded *session.Bounded, how unlocking) (err error) {
	defer bounded.Release()
	defer func() { h.A.observeEnd(bounded, err) }()
	if err := h.A.lockCommands(bounded); err != nil {
		h.unlockInBackground()
		return h.A.lossOr(err)
	}
	defer h.A.unlockCommands()
	return h.unlockInTurn(bounded, how)
}

// UnlockAfter is Unlock, but with the last hold of the acquisition, Redis keeps the lock for d.
func (h *Hold) UnlockAfter(ctx context.Context, d time.Duration) error {
	if err := settings.CheckKeep(d); err != nil {
		return err
	}
	if err := session.CheckContext(ctx); err != nil {
		return err
	}
	h.A.mu.Lock()
	if !h.released {
		k := h.A.keepingLocked()
		k.least = max(k.least, d)
	}
	h.A.mu.Unlock()
	op := h.A.releaseOp() + " after"
	if err := h.release(ctx, unlocking{after: true}); err != nil {
		return WithOp(err, op)
	}
	if !h.A.keepsFor(d) { // the background has finished an Unlock that had failed
		return &lockerr.OpError{Kind: lockerr.ErrNotHeld, Op: op, Name: h.A.Name}
	}
	return nil
}

// WithOp names the operation that the caller called, in the error of a release.
func WithOp(err error, op string) error {
	e, ok := err.(*lockerr.OpError) //nolint:errorlint // not one that it wraps, which may be of another call
	if !ok {
		return err
	}
	named := *e
	named.Op = op
	return &named
}

// Export is UnlockAfter for a lock that goes on elsewhere. It returns the id under which Redis
// keeps the lock. It is refused if there are other holds. An Export that fails frees the lock if
// the background finishes it, because its caller has no text.
func (h *Hold) Export(ctx context.Context, within time.Duration) (id string, err error) {
	if err := settings.CheckKeep(within); err != nil {
		return "", err
	}
	if err := session.CheckContext(ctx); err != nil {
		return "", err
	}
	if err := h.release(ctx, unlocking{exportFor: within}); err != nil {
		return "", WithOp(err, "export")
	}
	h.A.mu.Lock()
	exported := h.exported
	h.A.mu.Unlock()
	if !exported { // the background has finished an Export that had failed
		return "", &lockerr.OpError{Kind: lockerr.ErrNotHeld, Op: "export", Name: h.A.Name}
	}
	return h.A.StoredID(), nil
}

// unlockInTurn does what Unlock does, while the caller has the acquisition's turn.
func (h *Hold) unlockInTurn(ctx context.Context, how unlocking) error {
	left, err := h.beginUnlock(how.exportFor != 0)
	switch {
	case errors.Is(err, errUnlockedInBackground):
		return nil // the background has done it for this caller
	case err != nil:
		h.A.endIfUnused()
		return err
	case left == 0:
		return h.A.releaseLock(ctx, h, how)
	case how.brief:
		err := h.A.releaseHold(session.SingleAttempt(ctx), left)
		if errors.Is(err, lockerr.ErrLost) || errors.Is(err, lockerr.ErrClosed) {
			return err
		}
		return nil
	}
	return h.A.releaseHold(ctx, left)
}

// unlockInBackground finishes, in the background, an Unlock whose context ended while another
// command of the acquisition was in flight. The caller may never call Unlock again, and then the
// client would renew the lock for ever. So unlockInBackground waits for its turn without a time
// limit. If it waited only for the rest of the lease, as a caller does, a command that hangs could
// outlast it.
func (h *Hold) unlockInBackground() {
	h.A.mu.Lock()
	first := !h.unlockPending
	h.unlockPending = true
	h.A.mu.Unlock()
	if !first {
		return
	}
	h.A.session.Background(func(ctx context.Context) {
		if h.A.lockCommands(ctx) != nil {
			return // the client has closed, and the acquisition with it
		}
		var err error
		defer func() { h.A.observeEnd(ctx, err) }()
		defer h.A.unlockCommands()
		bounded := h.A.unlockContext(ctx)
		defer bounded.Release()
		err = h.unlockInTurn(bounded, unlocking{brief: true})
	})
}

// unlockContext bounds an unlock by ctx, and in any case by the rest of the lease.
//
// If ctx has ended before, that says nothing about the unlock: most often it is the reason for it.
// The unlock then gets the time of one command. If ctx ends because this hold is released, the
// unlock goes on, because contexts of a hold end before Redis is asked. The same is true of a hold
// on the path of this one. The deadline of ctx still applies. If it passes, the error says so, and
// not that ctx was cancelled.
func (a *Acquisition) unlockContext(ctx context.Context) *session.Bounded {
	if ctx.Err() != nil {
		return session.DetachedWithTimeout(ctx, a.attemptTime())
	}
	return session.WithDeadlineReasonWithoutOwnCancel(ctx, a, a.retriesUntil(time.Now()), trustEnded)
}

// trustEnded says in errors why an unlock gave up.
const trustEnded = "gave up with the end of trust in the lease"

// retriesUntil returns how long an unlock that fails is retried. That is until trust ends, because
// the lease ends soon after that. A later attempt could find that Redis no longer has the lock. It
// would then report a loss, and hide the real failure. One command gets its time in any case,
// counted from begun.
func (a *Acquisition) retriesUntil(begun time.Time) time.Time {
	until, least := a.lease.TrustedUntil(), begun.Add(a.attemptTime())
	if until.Before(least) {
		return least
	}
	return until
}

// attemptTime is how long one command may need for its answer over the link of this client.
func (a *Acquisition) attemptTime() time.Duration {
	return a.session.AttemptTime(a.Name, a.Settings.AttemptTimeout())
}

// beginUnlock takes the hold out of the count and ends its contexts. It returns how many holds are
// left. If none is left, the hold stays open until the release is done, so that a failed Unlock can
// be repeated.
func (h *Hold) beginUnlock(isExport bool) (left int, err error) {
	a := h.A
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.state == lost && (h.notified || !h.released): // not one that was released before
		a.markReleased(h)
		return 0, a.lostErr
	case h.released && errors.Is(h.cause, lockerr.ErrClosed):
		return 0, &lockerr.OpError{Kind: lockerr.ErrClosed, Op: a.releaseOp(), Name: a.Name, Err: errClosedFirst}
	case h.released && h.unlockPending:
		h.unlockPending = false
		return 0, errUnlockedInBackground
	case h.released && h.exported:
		return 0, &lockerr.OpError{Kind: lockerr.ErrNotHeld, Op: a.releaseOp(), Name: a.Name, Err: errExported}
	case h.released:
		return 0, &lockerr.OpError{Kind: lockerr.ErrNotHeld, Op: a.releaseOp(), Name: a.Name}
	case isExport && a.holds > 1:
		return 0, &lockerr.ConfigError{
			Setting: fmt.Sprintf("export of lock %q: number of holds", a.Name), Value: a.holds,
			Reason: "must be 1, because the text would end the other holds too; unlock these first",
		}
	case a.holds == 1:
		a.state, h.exported = releasing, isExport
		h.cancelContexts(errReleased)
		return 0, nil
	}
	a.holds--
	a.markReleased(h)
	return a.holds, nil
}

// markReleased marks a hold as released. The caller holds a.mu.
func (a *Acquisition) markReleased(h *Hold) {
	h.released = true
	a.open = slices.DeleteFunc(a.open, func(o *Hold) bool { return o == h })
	if h.cause == nil {
		h.cancelContexts(errReleased)
	}
}

// cancelContexts ends the contexts of the hold. The caller holds A.mu, which is safe: a cancel runs
// the functions of children in goroutines of their own, so they cannot come back here.
func (h *Hold) cancelContexts(cause error) {
	if h.cause == nil {
		h.cause = cause
	}
	if h.contexts == nil {
		return
	}
	cause = h.contextCause()
	for c := h.contexts; c != nil; c = c.next {
		c.cancel(cause)
	}
	h.contexts = nil
}

// releaseHold sends Redis the number of holds that are left. The hold is released whatever Redis
// answers, because the count is kept here.
func (a *Acquisition) releaseHold(ctx context.Context, left int) error {
	_, err := a.changeHolds(ctx, func(ctx context.Context) (HoldsUpdate, error) {
		return a.mutexBackend().SetHolds(ctx, a, left)
	})
	if errors.Is(err, ErrAlreadyReleased) { // Close released the whole lock while the command was in flight
		return &lockerr.OpError{Kind: lockerr.ErrClosed, Op: a.releaseOp(), Name: a.Name}
	}
	return err
}

// releaseLock releases the lock with its last hold. It first ends the renewal, and waits for one in
// flight, so that nothing is renewed after Unlock. If ctx ends while it waits, the background does
// the release.
//
// If a hook of go-redis ends the goroutine (runtime.Goexit), the background finishes the release.
func (a *Acquisition) releaseLock(ctx context.Context, h *Hold, how unlocking) error {
	a.stopRenewal(ctx)
	returned := false
	defer func() {
		if !returned {
			a.mu.Lock()
			a.releaseRetried = true
			a.mu.Unlock()
			h.unlockInBackground()
		}
	}()
	err := a.freeOrKeep(ctx, how.exportFor)
	returned = true
	a.mu.Lock()
	isExport := how.exportFor != 0
	isKept := isExport || a.keeping != nil && a.keeping.least != 0
	if errors.Is(err, ErrGone) && (a.releaseRetried && !isKept || a.state == released && !isExport) {
		err = nil // an earlier attempt of this Unlock, the background, or Close has released it
	}
	switch {
	case err == nil:
		a.state = released
		a.markReleased(h)
		a.notifyHolds(nil) // holds that were dropped: they end without an Unlock of theirs
	case errors.Is(err, ErrGone) && a.mayBeFreed: // and so it was not kept for this caller
		a.state = released
		a.markReleased(h)
		a.notifyHolds(nil)
		err = &lockerr.OpError{Kind: lockerr.ErrNotHeld, Op: a.releaseOp(), Name: a.Name}
	case errors.Is(err, ErrGone):
		a.markLost(event.Gone)
		a.markReleased(h)
		err = a.lostErr
	default:
		a.releaseRetried = true
	}
	isOver := (a.state == released || a.state == lost) && !a.isClosing
	a.mu.Unlock()
	if isOver {
		a.cleanUp()
	}
	a.notifyEnded()
	isOwn := isExport || how.after // its caller decides what to do next
	if err != nil && !isOwn && !errors.Is(err, lockerr.ErrLost) && !errors.Is(err, lockerr.ErrNotHeld) {
		a.retryRelease(err)
	}
	return err
}

// retryRelease goes on in the background with a release that failed with err, until it or a later
// Unlock succeeds. A later call of the program may be in progress, so each attempt waits for its
// turn.
func (a *Acquisition) retryRelease(err error) {
	a.session.RetryRelease(err, session.InFlight{}, a.Settings.Lease, func(ctx context.Context) error {
		if a.isReleased() {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, a.attemptTime())
		defer cancel()
		if err := a.lockCommands(ctx); err != nil {
			return err
		}
		defer a.unlockCommands()
		if a.isReleased() {
			return nil
		}
		err := a.freeOrKeep(ctx, 0)
		switch {
		case err == nil, errors.Is(err, ErrGone):
			a.cleanUp()
			return nil
		case a.isReleased():
			return nil
		}
		return err
	})
}

func (a *Acquisition) isReleased() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == released
}

// stopRenewal waits for a renewal in flight, but not for one that hangs. The release must still be
// sent, and a late renewal finds nothing to extend.
func (a *Acquisition) stopRenewal(ctx context.Context) {
	_, quiet := a.lease.BeginStop()
	if quiet == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, a.Settings.AttemptTimeout()/4)
	defer cancel()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
}

// HandleCollected is called when the user's handle has become garbage, by a goroutine of the
// runtime. That goroutine may end no context, start no timer and send on no channel of a program
// that runs in a bubble of testing/synctest. So the watchdog drops the hold, within a second. It is
// idle if the client has no lease. The goroutine of the runtime then drops the hold, which has been
// lost, and that may still end a process in a bubble.
func (h *Hold) HandleCollected() {
	if !h.A.session.Watchdog.Later(h.drop) {
		h.drop()
	}
}

// drop handles a hold whose handle has become garbage. If the background is still to finish an
// Unlock of the hold, drop does nothing. Otherwise it reports a hold that was not released, and the
// hold no longer counts. If no other hold is left, the client does not extend the lease any more,
// unless the owner re-enters. drop does not release the lock, because the work may go on without
// the handle, and has until the lease ends.
func (h *Hold) drop() {
	a := h.A
	a.mu.Lock()
	switch {
	case h.unlockPending && !h.released && (a.state == live || a.state == releasing):
		a.mu.Unlock()
		return
	case h.released || a.state != live:
		a.markReleased(h)
		a.mu.Unlock()
		a.endIfUnused()
		return
	}
	if h.lost != nil {
		a.orphaned = &orphan{h.lost, a.orphaned}
	}
	lastOne := a.holds == 1
	if !lastOne {
		a.holds--
	}
	a.markReleased(h)
	if lastOne {
		a.lease.StopRenewing() // with a.mu held: a re-entry may be about to resume it
	}
	a.mu.Unlock()
	text, kind := "a hold was dropped without Unlock; its lock is not renewed any more", "lock"
	switch {
	case a.IsPermit():
		text, kind = "a permit was dropped without Release; it is not renewed any more", "semaphore"
	case !lastOne:
		text = "a hold was dropped without Unlock; other holds keep its lock"
	}
	a.session.Observe(context.Background(), a.event(event.Leaked))
	a.session.ReportLeak(text,
		slog.String(kind, a.Name), slog.String("acquisition", a.ID), slog.String("acquired_at", h.callSite.String()))
}

// ReportProgress says that the work under the hold goes on. Without a progress timeout it does
// nothing.
func (h *Hold) ReportProgress() {
	if h.A.Settings.ProgressTimeout > 0 && !h.isReleased() {
		h.A.reportProgress()
	}
}

// Trusted reports whether the hold may be relied on now.
func (h *Hold) Trusted() bool { return !h.isReleased() && h.A.lease.Trusted() }

// TrustedUntil returns the time when trust ends, unless the lease is renewed before. It is zero if
// the hold was released.
func (h *Hold) TrustedUntil() time.Time {
	if h.isReleased() {
		return time.Time{}
	}
	return h.A.lease.TrustedUntil()
}

// isReleased reports whether an Unlock, or closing the client, has begun to end the hold. The lease
// does not show that: it stays trusted, because it may have other holds, or a release in flight.
func (h *Hold) isReleased() bool {
	h.A.mu.Lock()
	defer h.A.mu.Unlock()
	return h.unlockPending || h.cause != nil && !errors.Is(h.cause, lockerr.ErrLost)
}
