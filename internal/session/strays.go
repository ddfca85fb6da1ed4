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

// Strays are the attempts of a call that are in flight: unanswered, and possibly still to take
// effect. The zero value says that there are none, because every attempt was answered.
type Strays struct {
	until time.Time // no attempt has any effect after it
	// landings has one context for each attempt. It ends when the attempt can have no effect any
	// more, because it was answered after all or is void.
	landings []context.Context
}

// Any reports whether an attempt went unanswered.
func (s Strays) Any() bool { return !s.until.IsZero() }

// And returns the attempts of both.
func (s Strays) And(more Strays) Strays {
	if more.until.Before(s.until) {
		more.until = s.until
	}
	more.landings = append(s.flying(), more.flying()...)
	return more
}

// flying returns the contexts of attempts that may still take effect.
func (s Strays) flying() []context.Context {
	ended := func(landing context.Context) bool { return landing.Err() != nil }
	return slices.DeleteFunc(slices.Clone(s.landings), ended)
}

// onceEnded calls f, in a goroutine of its own, when all landings have ended.
func onceEnded(landings []context.Context, f func()) {
	var left atomic.Int64
	left.Store(int64(len(landings)))
	for _, landing := range landings {
		context.AfterFunc(landing, func() {
			if left.Add(-1) == 0 {
				f()
			}
		})
	}
}

// unanswered returns one attempt without an answer, which is void after voidAfter in server time.
// left is the attempt if it was left behind: it may still be answered. If left is nil, the attempt
// broke off, and no answer will come.
func unanswered(s *Session, voidAfter lua.Time, left *sender.Late) Strays {
	valid := s.until(voidAfter)
	landing, land := context.WithCancel(context.Background())
	time.AfterFunc(valid, land)
	if left != nil {
		left.Then(func(err error) {
			switch fault, _ := lua.Classify(err); {
			case err == nil, errors.Is(err, sender.ErrNotSent), fault == lua.NotRun, fault == lua.Refused, fault == lua.Closed:
				land()
			}
		})
	}
	return Strays{until: time.Now().Add(valid), landings: []context.Context{landing}}
}
