package acquisition

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch/internal/joined"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
)

// CloseAll gives back what a client has, because it closes. All holders are told
// before anything is released, since that may take long. What can be released at once is
// released first: what Redis refuses, or a node that hangs, does not keep the others
// waiting. It returns what could not be given back until ctx ended.
func CloseAll(ctx context.Context, held []*Acquisition) error {
	const briefly = 500 * time.Millisecond
	begun := time.Now()
	all := make([]closing, 0, len(held))
	for _, a := range held {
		if a.closeHolds() {
			all = append(all, closing{a: a})
		}
	}
	all = releaseAll(ctx, all, func(*Acquisition) time.Time { return time.Now().Add(briefly) })
	all = releaseAll(ctx, all, func(a *Acquisition) time.Time { return a.insistsUntil(begun) })
	var errs []error
	for _, c := range all {
		c.a.end()
		errs = append(errs, c.err)
	}
	return joined.Errors(errs...)
}

// closing is an acquisition whose client closes.
type closing struct {
	a   *Acquisition
	err error // of its last release
}

// releaseAll releases, each until an instant. It returns those that failed.
func releaseAll(ctx context.Context, all []closing, until func(*Acquisition) time.Time) (failed []closing) {
	const atOnce = 64 // a client that holds very many closes in bounded pieces
	var g errgroup.Group
	g.SetLimit(atOnce)
	var mu sync.Mutex
	for _, c := range all {
		g.Go(func() error {
			end := until(c.a)
			if c.err == nil || time.Now().Before(end) { // else its time is over, and what went wrong is known
				c.err = c.a.release(ctx, end)
			}
			if c.err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, c)
			}
			return nil
		})
	}
	_ = g.Wait()
	return failed
}

// Close ends the acquisition because its client closes: like a last Unlock,
// whatever the number of holds, with ErrClosed as the cause of its contexts.
// Whoever watches for the loss is told too: to a worker in another goroutine
// the lock ended without its asking.
func (a *Acquisition) Close(ctx context.Context) error {
	return CloseAll(ctx, []*Acquisition{a})
}

// closeHolds tells all holders that the client has closed. It reports whether
// there is anything to release.
func (a *Acquisition) closeHolds() bool {
	a.mu.Lock()
	keeps := a.state == live || a.state == leaving
	if keeps {
		a.state = released
	}
	a.open = slices.DeleteFunc(a.open, func(h *Hold) bool {
		h.released = true
		return errors.Is(h.cause, errReleased) // its Unlock is under way, or failed: it has asked
	})
	a.tell(a.session.Closed())
	a.open = nil
	a.mu.Unlock()
	if !keeps {
		a.end()
	}
	return keeps
}

// release gives the lock back when all holders have been told. It tries until an
// instant, and when ctx has ended not at all.
func (a *Acquisition) release(ctx context.Context, until time.Time) error {
	ctx, cancel := session.Within(ctx, until, trustIsOver)
	defer cancel()
	if ctx.Err() != nil {
		return &lockerr.OpError{Op: "unlock", Name: a.Name, Err: session.Cause(ctx)}
	}
	a.stopRenewal(ctx)
	if err := a.takeTurn(ctx, "unlock"); err != nil {
		return err
	}
	defer a.giveTurn()
	if err := a.keeper.Leave(ctx, a); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	a.end()
	return nil
}
