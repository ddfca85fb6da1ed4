package session

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lua"
)

// InFlight is the set of attempts of an operation that are in flight. They have no answer, and may
// still take effect. The zero value is the empty set: Redis answered every attempt.
//
// It contains only a pointer, because each held lock keeps one, and few operations have attempts in
// flight.
type InFlight struct{ attempts *attempts }

type attempts struct {
	until time.Time // no attempt takes effect after it
	// settled has one context for each attempt. It ends when the attempt can take no effect any
	// more, because it was answered after all or is void.
	settled []context.Context
}

// Any reports whether an attempt had no answer when its operation ended.
func (f InFlight) Any() bool { return f.attempts != nil }

// Merge returns the attempts of f and more that may still take effect.
func (f InFlight) Merge(more InFlight) InFlight {
	switch {
	case !f.Any():
		return more
	case !more.Any():
		return f
	}
	all := &attempts{until: more.attempts.until, settled: append(f.pending(), more.pending()...)}
	if all.until.Before(f.attempts.until) {
		all.until = f.attempts.until
	}
	return InFlight{all}
}

// remaining returns for how long attempts may still take effect.
func (f InFlight) remaining() time.Duration {
	if !f.Any() {
		return 0
	}
	return max(0, time.Until(f.attempts.until))
}

// pending returns the contexts of attempts that may still take effect.
func (f InFlight) pending() []context.Context {
	if !f.Any() {
		return nil
	}
	ended := func(ctx context.Context) bool { return ctx.Err() != nil }
	return slices.DeleteFunc(slices.Clone(f.attempts.settled), ended)
}

// afterAll calls f in a goroutine of its own when all contexts have ended. It does not block. It
// never calls f if there are no contexts.
func afterAll(contexts []context.Context, f func()) {
	var left atomic.Int64
	left.Store(int64(len(contexts)))
	for _, ctx := range contexts {
		context.AfterFunc(ctx, func() {
			if left.Add(-1) == 0 {
				f()
			}
		})
	}
}

// newInFlight returns one attempt without an answer, with voidAfter as its void-after time. left is
// the command if it was left behind, because it may still be answered. If left is nil, the attempt
// failed, and no answer will come.
func newInFlight(clock *serverClock, voidAfter lua.Time, left *sender.AbandonedCommand) InFlight {
	valid := clock.until(voidAfter)
	ctx, settle := context.WithCancel(context.Background())
	time.AfterFunc(valid, settle)
	if left != nil {
		left.OnEnd(func(err error) {
			switch fault, _ := lua.Classify(err); {
			case err == nil, errors.Is(err, sender.ErrNotSent), fault == lua.NotRun, fault == lua.Refused, fault == lua.Closed:
				settle()
			}
		})
	}
	return InFlight{&attempts{until: time.Now().Add(valid), settled: []context.Context{ctx}}}
}
