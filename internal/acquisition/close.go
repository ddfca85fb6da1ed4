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
	begun := time.Now()
	all := make([]*closing, 0, len(held))
	for _, a := range held {
		if a.closeHolds() {
			all = append(all, &closing{a: a})
		}
	}
	all = releaseOnce(ctx, all)
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
	a *Acquisition

	tried bool  // once
	err   error // of its last release
}

const atOnce = 64 // a client that holds very many closes in bounded pieces

// releaseOnce sends one release for each, all of them until one instant. A release that
// takes longer than its share of that time leaves its place to the next: behind a node
// that hangs may be others that do not. It returns those that failed.
func releaseOnce(ctx context.Context, all []*closing) (failed []*closing) {
	briefly := min(500*time.Millisecond+time.Duration(len(all))*time.Millisecond, 2*time.Second)
	end := time.Now().Add(briefly)
	ctx, cancel := session.Within(ctx, end, "gave up after "+briefly.String())
	defer cancel()
	share := briefly / 2 * atOnce / time.Duration(max(len(all), atOnce))
	places := make(chan struct{}, atOnce)
	var g sync.WaitGroup
	for _, c := range all {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		leave := sync.OnceFunc(func() { <-places })
		late := time.AfterFunc(share, leave)
		c.tried = true
		g.Go(func() {
			defer leave()
			defer late.Stop()
			once, cancel := session.Once(ctx)
			defer cancel()
			c.err = c.a.release(once)
		})
	}
	g.Wait()
	return slices.DeleteFunc(all, func(c *closing) bool { return c.tried && c.err == nil })
}

// releaseAll releases, each until an instant. It returns those that failed.
func releaseAll(ctx context.Context, all []*closing, until func(*Acquisition) time.Time) (failed []*closing) {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, c := range all {
		g.Go(func() error {
			end := until(c.a)
			if c.err != nil && !time.Now().Before(end) {
				return nil // its time is over, and what went wrong is known
			}
			ctx, cancel := session.Within(ctx, end, trustIsOver)
			defer cancel()
			c.err = c.a.release(ctx)
			return nil
		})
	}
	_ = g.Wait()
	return slices.DeleteFunc(all, func(c *closing) bool { return c.err == nil })
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

// release gives the lock back when all holders have been told. When ctx has ended, it
// does not try.
func (a *Acquisition) release(ctx context.Context) error {
	if ctx.Err() != nil {
		return &lockerr.OpError{Op: a.Release, Name: a.Name, Err: session.Cause(ctx)}
	}
	a.stopRenewal(ctx)
	if err := a.takeTurn(ctx, a.Release); err != nil {
		return err
	}
	defer a.giveTurn()
	if err := a.keeper.Leave(ctx, a); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	a.end()
	return nil
}
