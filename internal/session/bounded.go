package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// WithDeadlineReason returns a context that ends at end, or earlier with ctx. If it ends at end,
// errors contain why and do not match context.DeadlineExceeded, because the caller set no such
// deadline.
func WithDeadlineReason(ctx context.Context, end time.Time, why string) (context.Context, context.CancelFunc) {
	b := &Bounded{Context: withoutEndlessDeadline(ctx), end: end, why: why}
	return b, b.Release
}

// WithoutOwnCancel returns a context that ends with ctx. Errors describe its end like the end of
// ctx.
//
// The exception is a ctx that ends because of the call that uses it. own reports this for the
// cause of ctx. The result then goes on until the deadline of ctx, or without end if ctx has none.
// Nobody can know whether the caller would have cancelled ctx later.
func WithoutOwnCancel(ctx context.Context, own OwnEnds) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return withoutEndlessDeadline(ctx), func() {}
	}
	b := &Bounded{Context: ctx, own: own}
	return b, b.Release
}

// WithDeadlineReasonWithoutOwnCancel combines WithDeadlineReason and WithoutOwnCancel.
func WithDeadlineReasonWithoutOwnCancel(ctx context.Context, own OwnEnds, end time.Time, why string) *Bounded {
	return &Bounded{Context: withoutEndlessDeadline(ctx), own: own, end: end, why: why}
}

// withoutEndlessDeadline returns ctx, or ctx without its deadline if ctx has one and never ends. A
// program may make such a context by hand, to go on after the end of a request. The packages
// context and go-redis trust the deadline. A context derived from it would never end, and each
// command after the deadline would fail.
func withoutEndlessDeadline(ctx context.Context) context.Context {
	if _, ours := ctx.(*Bounded); ours { // it has no such deadline
		return ctx
	}
	if _, ok := ctx.Deadline(); ok && ctx.Done() == nil {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// OwnEnds knows with which causes a context ends because of the call that uses it.
type OwnEnds interface{ IsOwnEnd(cause error) bool }

// Bounded is a context that ends at end, or with its parent. With own, it goes on if the parent
// ends because of redlatch itself.
//
// Nearly every command is answered long before either happens. So Bounded makes no timer and does
// not watch its parent, until somebody waits for Done. The sender does not: it looks at EndsAt.
type Bounded struct {
	context.Context // the parent

	end time.Time // zero: only the parent ends it
	why string    // why it ends at end
	// callerCause is why the caller's context has ended; nil if it had not when this one was made.
	callerCause error
	own         OwnEnds    // nil: the parent ends it, whatever the cause
	limit       *waitLimit // nil: it is not of a wait with a wait deadline

	mu       sync.Mutex
	released atomic.Bool
	full     atomic.Pointer[fullContext] // nil until somebody needs it
}

// fullContext is the context that Bounded stands for.
type fullContext struct {
	context.Context

	cancel context.CancelFunc
}

// EndsAt implements sender.Bounded.
func (b *Bounded) EndsAt() (end time.Time, earlier <-chan struct{}) {
	if full := b.full.Load(); full != nil {
		return b.end, full.Done()
	}
	return b.end, b.Context.Done()
}

// Deadline returns when the context ends at the latest.
func (b *Bounded) Deadline() (time.Time, bool) {
	deadline, ok := b.Context.Deadline()
	if !b.end.IsZero() && (!ok || b.end.Before(deadline)) {
		return b.end, true
	}
	return deadline, ok
}

// Done returns a channel that is closed when the context ends.
func (b *Bounded) Done() <-chan struct{} { return b.fill().Done() }

// Err returns why the context ended, or nil.
func (b *Bounded) Err() error {
	full := b.full.Load()
	if full == nil && (b.released.Load() || b.Context.Err() != nil || !b.end.IsZero() && !time.Now().Before(b.end)) {
		full = b.fill()
	}
	if full == nil {
		return nil
	}
	return full.Err()
}

// Value returns the value of the parent. The package context also finds the cause of an end by it.
func (b *Bounded) Value(key any) any {
	if full := b.full.Load(); full != nil {
		return full.Value(key)
	}
	return b.Context.Value(key)
}

// Release ends the context, and stops its timer and its watch of the parent.
func (b *Bounded) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.released.Store(true)
	if full := b.full.Load(); full != nil {
		full.cancel()
	}
}

// fill makes the context that Bounded stands for, once.
func (b *Bounded) fill() *fullContext {
	b.mu.Lock()
	defer b.mu.Unlock()
	if full := b.full.Load(); full != nil {
		return full
	}
	full := &fullContext{Context: b.Context, cancel: func() {}}
	if b.own != nil {
		full.outlast(b.Context, b.own)
	}
	if !b.end.IsZero() {
		stop := full.cancel
		ctx, cancel := context.WithDeadlineCause(withoutDeadline{full.Context}, b.end, ownDeadline{why: b.why, callerCause: b.callerCause})
		full.Context, full.cancel = ctx, func() { cancel(); stop() }
	}
	if b.released.Load() {
		full.cancel()
	}
	b.full.Store(full)
	return full
}

// withoutDeadline hides the deadline of a context, which ends as before. WithDeadlineCause makes no
// timer if the parent has an earlier deadline. A context of a program may have a deadline at which
// it does not end. The child would then never end.
type withoutDeadline struct{ context.Context }

// Deadline says that there is none.
func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// outlast makes the context go on if the parent ends with a cause of our own.
func (f *fullContext) outlast(parent context.Context, own OwnEnds) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	end := func(cause error) { cancel(ownDeadline{why: cause.Error(), callerCause: cause}) }
	onEnd := func() {
		if !own.IsOwnEnd(causeOf(parent)) {
			end(Cause(parent))
		} else if deadline, ok := parent.Deadline(); ok {
			timer := time.AfterFunc(time.Until(deadline), func() { end(context.DeadlineExceeded) })
			context.AfterFunc(ctx, func() { timer.Stop() })
		}
	}
	f.Context, f.cancel = ctx, func() { cancel(nil) }
	if parent.Err() != nil {
		onEnd()
		return
	}
	stop := context.AfterFunc(parent, onEnd)
	f.cancel = func() { stop(); cancel(nil) }
}

// causeOf is context.Cause. It makes sure that a Bounded context knows the cause.
func causeOf(ctx context.Context) error {
	if b, ok := ctx.(*Bounded); ok {
		ctx = b.fill()
	}
	return context.Cause(ctx)
}
