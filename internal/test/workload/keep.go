package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/lockerr"
)

// keep ends the only hold, and Redis keeps the lock for d. Until then, the actor trusts that nobody
// else gets it. If an Unlock within first succeeds, keep does no more.
func (a *Actor) keep(ctx context.Context, d, first time.Duration) {
	if len(a.holds) != 1 {
		return
	}
	h := a.holds[0]
	trusted := h.hold.TrustedUntil()
	unlocked := false
	op := a.unlockBy(ctx, 0, func() error {
		earlier := a.unlockFirst(ctx, h.hold, &first, &unlocked)
		if unlocked {
			return earlier
		}
		bounded, cancel := a.bound(ctx, Step{For: a.UnlockLimit})
		defer cancel()
		defer a.expectReturn(bounded, Keep)()
		return unlessReleased(a.survive(func() error { return h.hold.(Keeping).UnlockAfter(bounded, d) }), earlier)
	})
	if op.Outcome == history.Lost && time.Now().Before(trusted) && a.broken == nil {
		a.broken = fmt.Errorf("actor %d: a hold was lost %v before the end of its trust, when Redis was to keep it", a.Client, time.Until(trusted))
	}
	if op.Outcome == history.Done && !unlocked {
		a.trustUntil(h, op, op.Call+(d-hair).Nanoseconds())
	}
}

// unlockFirst calls Unlock with a time limit, once. It sets unlocked if the call had a result, so
// that nothing is left to do.
func (a *Actor) unlockFirst(ctx context.Context, h Hold, limit *time.Duration, unlocked *bool) error {
	if *limit == 0 {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	*limit = 0
	err := a.survive(func() error { return h.Unlock(bounded) })
	*unlocked = !failed(err)
	return err
}

// unlessReleased returns err, or the earlier error if the hold counts as released since that call.
func unlessReleased(err, earlier error) error {
	if earlier != nil && errors.Is(err, lockerr.ErrNotHeld) {
		return earlier
	}
	return err
}

// pass exports the only hold, and attaches it again in half of the time. Until then, the actor
// trusts that nobody else gets the lock. If an Unlock within first succeeds, pass does no more.
func (a *Actor) pass(ctx context.Context, within, first time.Duration) {
	if len(a.holds) != 1 {
		return
	}
	h := a.holds[0]
	var text string
	unlocked := false
	op := a.unlockBy(ctx, 0, func() error {
		earlier := a.unlockFirst(ctx, h.hold, &first, &unlocked)
		if unlocked {
			return earlier
		}
		bounded, cancel := a.bound(ctx, Step{For: a.UnlockLimit})
		defer cancel()
		defer a.expectReturn(bounded, Pass)()
		return unlessReleased(a.survive(func() (err error) {
			text, err = h.hold.(Exporting).Export(bounded, within)
			return err
		}), earlier)
	})
	if op.Outcome != history.Done || unlocked {
		return
	}
	wait(ctx, within/2)
	a.trustUntil(h, op, min(a.Recorder.Now(), op.Call+(within-hair).Nanoseconds()))
	if ctx.Err() == nil && !a.over {
		a.attach(ctx, text, op.Call+within.Nanoseconds())
	}
}

// attach goes on with an exported hold, which Redis keeps until end.
func (a *Actor) attach(ctx context.Context, text string, end int64) {
	began := a.Recorder.Now()
	call := a.Recorder.Begin(history.Op{Client: a.Client, Name: a.Name, Owner: a.chain.name, Kind: history.Acquire})
	var hold Hold
	err := a.survive(func() (err error) {
		hold, err = a.Lock.(Attaching).Attach(a.owned(ctx), text)
		return err
	})
	op := call.End(func(op *history.Op) {
		if err != nil {
			a.fail(op, err)
			return
		}
		op.Outcome, op.Fence, op.Acquisition = history.Done, hold.Fence(), hold.ID()
	})
	if err == nil {
		a.begin(hold, op)
	}
	a.doubt = a.doubt || err != nil
	// A reply may have been lost, and the new grant may have ended since.
	now := a.Recorder.Now()
	if errors.Is(err, lockerr.ErrLost) && now < end && now < began+a.Lease.Nanoseconds() && a.broken == nil {
		a.broken = fmt.Errorf("actor %d: an exported hold was lost %v before its end: %w", a.Client, time.Duration(end-now), err)
	}
}

// hair is longer than Redis rounds a time down by.
const hair = 3 * time.Millisecond

// trustUntil records that nobody else may have the lock after a hold has ended.
func (a *Actor) trustUntil(h held, end history.Op, until int64) {
	w := h.window
	w.Owner += " kept"
	w.From, w.Until = end.Return, until
	if w.From < w.Until {
		a.Recorder.Trust(w)
	}
}

// Broken returns the first promise that was broken, and that no history shows.
func (a *Actor) Broken() error { return a.broken }
