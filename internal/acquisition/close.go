package acquisition

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch/internal/oneline"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
)

// CloseAll releases all that a client holds, because the client closes. It notifies all holders
// first, since the releases may take long. Then it sends each release once, before it repeats any,
// so that a refusal or a node that hangs does not delay the others. It returns the errors of all
// that it could not release before ctx ended.
func CloseAll(ctx context.Context, held []*Acquisition) error {
	begun := time.Now()
	all := make([]*closeRelease, 0, len(held))
	for _, a := range held {
		if a.closeHolds() {
			all = append(all, &closeRelease{a: a})
		}
	}
	ctx = session.ByWorker(ctx)
	all = releaseAllOnce(ctx, all)
	all = releaseAll(ctx, all, func(a *Acquisition) time.Time { return a.retriesUntil(begun) })
	var errs []error
	failed := map[*Acquisition]error{}
	for _, c := range all {
		c.a.notifyBackend()
		errs = append(errs, c.err)
		failed[c.a] = c.err
	}
	for _, a := range held {
		a.observeEnd(context.Background(), failed[a])
	}
	return oneline.Errors(errs...)
}

// closeRelease is an acquisition that CloseAll releases.
type closeRelease struct {
	a *Acquisition

	tried bool  // by releaseAllOnce
	err   error // of its last release
}

const maxParallelReleases = 64 // bounds the releases at a time: a client may hold very many locks

// releaseAllOnce sends one release for each acquisition, with one deadline for all. If a release
// takes longer than its share of that time, another one may start beside it: other nodes may answer
// while one node hangs. releaseAllOnce returns those that failed.
func releaseAllOnce(ctx context.Context, all []*closeRelease) (failed []*closeRelease) {
	briefly := min(500*time.Millisecond+time.Duration(len(all))*time.Millisecond, 2*time.Second)
	end := time.Now().Add(briefly)
	ctx, cancel := session.WithDeadlineReason(ctx, end, "gave up after "+briefly.String())
	defer cancel()
	share := briefly / 2 * maxParallelReleases / time.Duration(max(len(all), maxParallelReleases))
	slots := make(chan struct{}, maxParallelReleases)
	var g sync.WaitGroup
	for _, c := range all {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		freeSlot := sync.OnceFunc(func() { <-slots })
		late := time.AfterFunc(share, freeSlot)
		c.tried = true
		g.Go(func() {
			defer freeSlot()
			defer late.Stop()
			c.err = c.a.releaseForClose(session.SingleAttempt(ctx))
		})
	}
	g.Wait()
	return slices.DeleteFunc(all, func(c *closeRelease) bool { return c.tried && c.err == nil })
}

// releaseAll releases each acquisition, and retries until the time that until returns for it. It
// returns those that failed.
func releaseAll(ctx context.Context, all []*closeRelease, until func(*Acquisition) time.Time) (failed []*closeRelease) {
	var g errgroup.Group
	g.SetLimit(maxParallelReleases)
	for _, c := range all {
		g.Go(func() error {
			end := until(c.a)
			if c.err != nil && (ctx.Err() != nil || !time.Now().Before(end)) {
				return nil // its time is over, and its error is known
			}
			ctx, cancel := session.WithDeadlineReason(ctx, end, trustEnded)
			defer cancel()
			c.err = c.a.releaseForClose(ctx)
			return nil
		})
	}
	_ = g.Wait()
	return slices.DeleteFunc(all, func(c *closeRelease) bool { return c.err == nil })
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
	keeps := a.state == live || a.state == releasing
	if keeps {
		a.state, a.isClosing = released, true
	}
	a.open = slices.DeleteFunc(a.open, func(h *Hold) bool {
		h.released = true
		return errors.Is(h.cause, errReleased) // its Unlock has begun, so it needs no notice
	})
	a.notifyHolds(a.session.CauseOfClose())
	a.open = nil
	a.mu.Unlock()
	if !keeps {
		a.notifyBackend()
	}
	return keeps
}

// releaseForClose releases the lock, after all holders were notified. If ctx has ended, it sends
// nothing.
func (a *Acquisition) releaseForClose(ctx context.Context) error {
	if ctx.Err() != nil {
		return &lockerr.OpError{Kind: lockerr.ErrUnavailable, Op: a.releaseOp(), Name: a.Name, Err: session.Cause(ctx)}
	}
	a.stopRenewal(ctx)
	if err := a.lockCommands(ctx); err != nil {
		return err
	}
	defer a.unlockCommands()
	if a.isKept() { // by an Unlock that was in flight
		a.notifyBackend()
		return nil
	}
	if err := a.freeOrKeep(ctx, 0); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	a.notifyBackend()
	return nil
}
