package acquisition

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch/internal/joined"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
)

// CloseAll gives back what a client has, because it closes. All holders are told
// before anything is released, since that may take long. It returns what could not be
// given back until ctx ended.
func CloseAll(ctx context.Context, held []*Acquisition) error {
	const atOnce = 64 // a client that holds very many closes in bounded pieces
	held = slices.DeleteFunc(held, func(a *Acquisition) bool { return !a.closeHolds() })
	var g errgroup.Group
	g.SetLimit(atOnce)
	var mu sync.Mutex
	var all []error
	for _, a := range held {
		g.Go(func() error {
			if err := a.release(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, err)
			}
			return nil
		})
	}
	_ = g.Wait()
	return joined.Errors(all...)
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
	a.tell(lockerr.ErrClosed)
	a.open = nil
	a.mu.Unlock()
	if !keeps {
		a.end()
	}
	return keeps
}

// release gives the lock back when all holders have been told. It tries for as long
// as an Unlock would, and when ctx has ended not at all.
func (a *Acquisition) release(ctx context.Context) error {
	defer a.end()
	if ctx.Err() != nil {
		return &lockerr.OpError{Op: "unlock", Name: a.Name, Err: session.Cause(ctx)}
	}
	ctx, cancel := session.Within(ctx, a.insistsUntil(), trustIsOver)
	defer cancel()
	a.stopRenewal(ctx)
	if err := a.takeTurn(ctx, "unlock"); err != nil {
		return err
	}
	defer a.giveTurn()
	if err := a.keeper.Leave(ctx, a); !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}
