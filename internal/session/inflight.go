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

// InFlight are the attempts of a call that are in flight: unanswered, and possibly still to take
// effect. The zero value says that there are none, because every attempt was answered.
type InFlight struct {
	until time.Time // no attempt has any effect after it
	// settled has one context for each attempt. It ends when the attempt can have no effect any
	// more, because it was answered after all or is void.
	settled []context.Context
}

// Any reports whether an attempt went unanswered.
func (s InFlight) Any() bool { return !s.until.IsZero() }

// Merge returns the attempts of both.
func (s InFlight) Merge(more InFlight) InFlight {
	if more.until.Before(s.until) {
		more.until = s.until
	}
	more.settled = append(s.pending(), more.pending()...)
	return more
}

// pending returns the contexts of attempts that may still take effect.
func (s InFlight) pending() []context.Context {
	ended := func(ctx context.Context) bool { return ctx.Err() != nil }
	return slices.DeleteFunc(slices.Clone(s.settled), ended)
}

// afterAll calls f, in a goroutine of its own, when all landings have ended.
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

// newInFlight returns one attempt without an answer, which is void after voidAfter in server time.
// left is the attempt if it was left behind: it may still be answered. If left is nil, the attempt
// broke off, and no answer will come.
func newInFlight(s *Session, voidAfter lua.Time, left *sender.AbandonedCommand) InFlight {
	valid := s.timeUntil(voidAfter)
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
	return InFlight{until: time.Now().Add(valid), settled: []context.Context{ctx}}
}
