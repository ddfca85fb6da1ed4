package acquisition

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
)

// Hold is one of the holds of an acquisition: what stands behind the handle
// that the user has. It must not refer to that handle, whose becoming garbage
// is how a forgotten hold is noticed.
type Hold struct {
	A    *Acquisition
	site Site

	// Guarded by A.mu.
	released bool
	later    bool          // an Unlock that gave up is finished in the background
	cause    error         // why its contexts ended; nil while it is held
	told     bool          // it ended without an Unlock
	lost     chan struct{} // closed then; made when asked for
	cancels  []context.CancelCauseFunc
}

// errUnlockedLater says that an Unlock which had to give up was finished in the
// background.
var errUnlockedLater = errors.New("released in the background")

// errReleased is what the contexts of released holds say.
var errReleased = errors.New("redlatch: released")

// releasedBy is the cause with which the contexts of a released hold end. It says whose
// release it was.
type releasedBy struct {
	id    string       // of the acquisition
	owner *owner.Owner // of a lock; a permit has none
}

func (*releasedBy) Error() string { return errReleased.Error() }
func (*releasedBy) Unwrap() error { return errReleased }

func (a *Acquisition) releaseCause() error {
	by := &releasedBy{id: a.ID}
	if !a.Permit {
		by.owner = a.Owner
	}
	return by
}

// hasEnded reports whether a context that ended with that cause ended because of the
// release of this acquisition, or of a lock under whose context it was acquired. Any other
// end is that of the caller's context, also where the caller cancels it with an error
// around such a cause.
func (a *Acquisition) hasEnded(cause error) bool {
	by, ok := cause.(*releasedBy) //nolint:errorlint // one inside of a cause is of somebody else
	if !ok || by.id == a.ID {
		return ok
	}
	isOuter := a.Permit || by.owner != a.Owner // two locks of one WithOwner are beside each other
	return by.owner != nil && isOuter && a.Owner.Has(by.owner)
}

// newHold is called with a.mu held, or before a is shared.
func (a *Acquisition) newHold(site Site) *Hold {
	h := &Hold{A: a, site: site}
	a.open = append(a.open, h)
	return h
}

// Derive returns a child of parent that re-enters the lock and ends, with a cause,
// when the hold does. There is no goroutine behind it.
func (h *Hold) Derive(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(owner.Below(parent, h.A.Owner))
	h.A.mu.Lock()
	defer h.A.mu.Unlock()
	if h.cause == nil {
		h.cancels = append(h.cancels, cancel)
	} else {
		cancel(h.cause)
	}
	return ctx
}

// Lost is closed when the hold ends without an Unlock.
func (h *Hold) Lost() <-chan struct{} {
	h.A.mu.Lock()
	defer h.A.mu.Unlock()
	if h.lost == nil {
		h.lost = make(chan struct{})
		if h.told {
			close(h.lost)
		}
	}
	return h.lost
}

// LostErr is the error of a lost hold, else nil.
func (h *Hold) LostErr() error {
	h.A.mu.Lock()
	defer h.A.mu.Unlock()
	if h.A.lostErr == nil {
		return nil
	}
	return h.A.lostErr
}

// Unlock gives the hold back, and the lock with the last one.
func (h *Hold) Unlock(ctx context.Context) error {
	if err := session.CheckContext(ctx); err != nil {
		return err
	}
	ctx, cancel := h.A.unlockContext(ctx)
	defer cancel()
	if err := h.A.takeTurn(ctx, h.A.Release); err != nil {
		h.unlockLater()
		return h.A.lostOr(err)
	}
	defer h.A.giveTurn()
	return h.unlock(ctx)
}

// unlock is Unlock in the acquisition's turn.
func (h *Hold) unlock(ctx context.Context) error {
	left, err := h.close()
	switch {
	case errors.Is(err, errUnlockedLater):
		return nil // it was done in the background, for this very caller
	case err != nil:
		h.A.endIfDone()
		return err
	case left == 0:
		return h.A.leave(ctx, h)
	}
	return h.A.giveOne(ctx, left)
}

// unlockLater finishes an Unlock whose context ended while another command of
// the acquisition was under way: nobody may come again, and what nobody gives
// back is renewed for ever. So it waits for its turn however long that takes;
// within what the lease has left, as a caller waits, a command that hangs would
// outlast it.
func (h *Hold) unlockLater() {
	h.A.mu.Lock()
	first := !h.later
	h.later = true
	h.A.mu.Unlock()
	if !first {
		return
	}
	h.A.session.Background(func(ctx context.Context) {
		if h.A.takeTurn(ctx, h.A.Release) != nil {
			return // the client has closed, and the acquisition with it
		}
		defer h.A.giveTurn()
		ctx, cancel := h.A.unlockContext(ctx)
		defer cancel()
		_ = h.unlock(ctx)
	})
}

// unlockContext bounds an unlock by the caller's context while that lives, and in
// any case by what the lease has left. A context that is already over says nothing
// about unlocking: most often it is the reason for it. Nor does one that ends because
// this very hold is released, which happens before Redis is asked, or one on the path of
// this one. The deadline of ctx is one of the result, too, and left to it: a caller who ran out of
// time is told that, and not of a cancel.
func (a *Acquisition) unlockContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return session.Beyond(ctx, a.Settings.CallLimit())
	}
	outlasting, stop := session.Outlasting(ctx, a.hasEnded)
	within, cancel := session.Within(outlasting, a.insistsUntil(time.Now()), trustIsOver)
	return within, func() { cancel(); stop() }
}

// trustIsOver is what an unlock says that was given up then.
const trustIsOver = "gave up with the end of trust in the lease"

// insistsUntil is how long an unlock that fails is tried again: until trust ends, for
// soon after that the lease does. Insisting for longer, it would find one day that
// Redis has nothing any more, and say that the lock was lost, and not what was wrong.
// One command has its time in any case, from when it was begun.
func (a *Acquisition) insistsUntil(begun time.Time) time.Time {
	until, least := a.lease.TrustedUntil(), begun.Add(a.Settings.CallLimit())
	if until.Before(least) {
		return least
	}
	return until
}

// close takes the hold out of the count and ends its contexts. It reports how
// many are left; when none is, the hold stays open until the release is done,
// so that a failed Unlock may be tried again.
func (h *Hold) close() (left int, err error) {
	a := h.A
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.state == lost && (h.told || !h.released): // not one that was released before
		a.settle(h)
		return 0, a.lostErr
	case h.released && h.later:
		h.later = false
		return 0, errUnlockedLater
	case h.released:
		kind := lockerr.ErrNotHeld
		if errors.Is(h.cause, lockerr.ErrClosed) {
			kind = lockerr.ErrClosed
		}
		return 0, &lockerr.OpError{Kind: kind, Op: a.Release, Name: a.Name}
	case a.holds == 1:
		a.state = leaving
		h.end(a.releaseCause())
		return 0, nil
	}
	a.holds--
	a.settle(h)
	return a.holds, nil
}

// settle marks a hold released, with a.mu held.
func (a *Acquisition) settle(h *Hold) {
	h.released = true
	a.open = slices.DeleteFunc(a.open, func(o *Hold) bool { return o == h })
	h.end(a.releaseCause())
}

// end ends the contexts of the hold, with A.mu held: cancelling runs the
// functions of children in goroutines of their own and so cannot come back here.
func (h *Hold) end(cause error) {
	if h.cause == nil {
		h.cause = cause
	}
	for _, cancel := range h.cancels {
		cancel(cause)
	}
	h.cancels = nil
}

// giveOne tells Redis that one hold less is left. The hold counts as released
// whatever Redis says: the count is kept here.
func (a *Acquisition) giveOne(ctx context.Context, left int) error {
	ctx, cancel := a.untilLost(ctx)
	defer cancel()
	answer, err := a.keeper.SetHolds(ctx, a, left)
	if errors.Is(err, ErrGone) {
		if err := a.lose(); !errors.Is(err, ErrEnded) {
			return err
		}
		// Close released the whole lock while the command was under way.
		return &lockerr.OpError{Kind: lockerr.ErrClosed, Op: a.Release, Name: a.Name}
	}
	a.mendNumber(answer.Strays, err)
	if err != nil {
		return a.lostOr(err)
	}
	return nil
}

// leave gives the lock back with its last hold. Renewal ends first, and the one
// in flight is waited for, so that nothing is renewed after Unlock.
func (a *Acquisition) leave(ctx context.Context, h *Hold) error {
	a.stopRenewal(ctx)
	err := a.keeper.Leave(ctx, a)
	a.mu.Lock()
	if errors.Is(err, ErrGone) && (a.retried || a.state == released) {
		err = nil // an earlier try of this same Unlock, the background, or closing has released it
	}
	switch {
	case err == nil:
		a.state = released
		a.settle(h)
		a.tell(nil) // holds that were dropped: they end without an Unlock of theirs
	case errors.Is(err, ErrGone):
		a.setLost(goneReason)
		a.settle(h)
		err = a.lostErr
	default:
		a.retried = true
	}
	a.mu.Unlock()
	a.end()
	return err
}

// stopRenewal waits for a renewal in flight, but not for one that hangs: the
// release must still be sent, and a late renewal finds nothing to extend.
func (a *Acquisition) stopRenewal(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, a.Settings.CallLimit()/4)
	defer cancel()
	a.lease.Stop(ctx)
}

// Forget is called when the user's handle has become garbage. A hold that waits
// to be released, after an Unlock that gave up, is left to that. One that was not
// released is reported, and no longer counts; when no other hold is left,
// the lease is not extended any more, unless the owner enters again. It is not
// released at once: whoever forgot the handle may still be at work, and has
// until the lease ends.
func (h *Hold) Forget() {
	a := h.A
	a.mu.Lock()
	switch {
	case a.state == live && h.later && !h.released:
		a.mu.Unlock()
		return
	case h.released || a.state != live:
		a.settle(h)
		a.mu.Unlock()
		a.endIfDone()
		return
	}
	if h.lost != nil {
		a.watched = append(a.watched, h.lost)
	}
	lastOne := a.holds == 1
	if !lastOne {
		a.holds--
	}
	a.settle(h)
	if lastOne {
		a.lease.Abandon() // with a.mu held: a re-entry may be about to resume it
	}
	a.mu.Unlock()
	becomes := "its lock is not renewed any more"
	if !lastOne {
		becomes = "other holds keep its lock"
	}
	a.session.Dropped(becomes,
		slog.String("lock", a.Name), slog.String("acquisition", a.ID), slog.String("acquired_at", h.site.String()))
}

// Trusted reports whether the hold may be relied on now.
func (h *Hold) Trusted() bool { return !h.isReleased() && h.A.lease.Trusted() }

// TrustedUntil is when trust ends unless the lease is renewed; zero when the
// hold was released.
func (h *Hold) TrustedUntil() time.Time {
	if h.isReleased() {
		return time.Time{}
	}
	return h.A.lease.TrustedUntil()
}

// isReleased reports whether an Unlock, or closing the client, has begun to end
// the hold. The lease goes on being trusted by itself: it may have other holds,
// and a release may be on its way.
func (h *Hold) isReleased() bool {
	h.A.mu.Lock()
	defer h.A.mu.Unlock()
	return h.later || h.cause != nil && !errors.Is(h.cause, lockerr.ErrLost)
}
