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

// Strays is what the unanswered attempts of a call may still do. The zero value says
// that there are none: every attempt was answered.
type Strays struct {
	until time.Time // none has any effect after it
	// landings has one for each attempt. It ends when that has no effect any more: it
	// was answered after all, or is void.
	landings []context.Context
}

// Any reports whether an attempt went unanswered.
func (s Strays) Any() bool { return !s.until.IsZero() }

// And is both.
func (s Strays) And(more Strays) Strays {
	if more.until.Before(s.until) {
		more.until = s.until
	}
	more.landings = append(s.flying(), more.flying()...)
	return more
}

// flying has those that may have an effect yet.
func (s Strays) flying() []context.Context {
	ended := func(landing context.Context) bool { return landing.Err() != nil }
	return slices.DeleteFunc(slices.Clone(s.landings), ended)
}

// onceEnded calls f, in a goroutine of its own, when all of them have ended.
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

// unanswered is one attempt that was not answered, and is void after a time of the
// server. One that was left behind may be answered yet; of one that broke off, nil,
// nothing will be heard.
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
