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

// CloseAll releases all that a client holds, because the client closes. It notifies all holders
// first, since the releases may take long. Then it sends each release once, before it repeats any,
// so that a refusal or a node that hangs does not delay the others. It returns the errors of all
// that it could not release before ctx ended.
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

// closing is an acquisition that CloseAll releases.
type closing struct {
	a *Acquisition

	tried bool  // by releaseOnce
	err   error // of its last release
}

const atOnce = 64 // bounds the releases at a time: a client may hold very many locks

// releaseOnce sends one release for each acquisition, with one deadline for all. If a release takes
// longer than its share of that time, another one may start beside it: other nodes may answer while
// one node hangs. releaseOnce returns those that failed.
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

// releaseAll releases each acquisition, and retries until the time that until returns for it. It
// returns those that failed.
func releaseAll(ctx context.Context, all []*closing, until func(*Acquisition) time.Time) (failed []*closing) {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, c := range all {
		g.Go(func() error {
			end := until(c.a)
			if c.err != nil && !time.Now().Before(end) {
				return nil // its time is over, and its error is known
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

// Close releases the acquisition because its client closes. It works like a last Unlock, whatever
// the number of holds, but contexts end with ErrClosed as their cause. Close also closes the Lost
// channels: for a worker in another goroutine, the lock ended without its Unlock.
func (a *Acquisition) Close(ctx context.Context) error {
	return CloseAll(ctx, []*Acquisition{a})
}

// closeHolds notifies all holders that the client has closed. It reports whether there is anything
// to release.
func (a *Acquisition) closeHolds() bool {
	a.mu.Lock()
	keeps := a.state == live || a.state == leaving
	if keeps {
		a.state = released
	}
	a.open = slices.DeleteFunc(a.open, func(h *Hold) bool {
		h.released = true
		return errors.Is(h.cause, errReleased) // its Unlock has begun, so it needs no notice
	})
	a.tell(a.session.Closed())
	a.open = nil
	a.mu.Unlock()
	if !keeps {
		a.end()
	}
	return keeps
}

// release releases the lock, after all holders were notified. If ctx has ended, it sends nothing.
func (a *Acquisition) release(ctx context.Context) error {
	if ctx.Err() != nil {
		return &lockerr.OpError{Op: a.ReleaseOp, Name: a.Name, Err: session.Cause(ctx)}
	}
	a.stopRenewal(ctx)
	if err := a.takeTurn(ctx, a.ReleaseOp); err != nil {
		return err
	}
	defer a.giveTurn()
	if err := a.backend.Release(ctx, a); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	a.end()
	return nil
}
