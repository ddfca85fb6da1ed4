package session

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/redlatch/redlatch/lua"
)

// Strays is what the unanswered attempts of a call may still do. The zero value says
// that there are none: every attempt was answered.
type Strays struct {
	until lua.Time // of the server: none has any effect after it
	// landings has one for each attempt that was left behind. It ends when that is
	// answered after all: then it has had what effect it can have.
	landings []context.Context
	unheard  bool // of one at least nothing will be heard: only its end is known
}

// Any reports whether an attempt went unanswered.
func (s Strays) Any() bool { return s.until != 0 }

// And is both.
func (s Strays) And(more Strays) Strays {
	const most = 8 // in an outage of hours, of each call that waits for its end
	all := Strays{
		until:    max(s.until, more.until), // the guess of the clock may have fallen back since
		landings: slices.Concat(s.landings, more.landings),
		unheard:  s.unheard || more.unheard,
	}
	if all.unheard || len(all.landings) > most {
		all.landings, all.unheard = nil, true
	}
	return all
}

// landed reports whether all attempts were answered after all.
func (s Strays) landed() bool {
	return !s.unheard && !slices.ContainsFunc(s.landings, func(l context.Context) bool { return l.Err() == nil })
}

// onceLanded calls f when all attempts were answered after all, if ever.
func (s Strays) onceLanded(f func()) {
	var flying atomic.Int64
	flying.Store(int64(len(s.landings)))
	for _, l := range s.landings {
		context.AfterFunc(l, func() {
			if flying.Add(-1) == 0 {
				f()
			}
		})
	}
}

// unanswered is one attempt that was not answered, with its end. One that was left
// behind may be answered yet; of one that broke off, nil, nothing will be heard.
func unanswered[T any](until lua.Time, left <-chan result[T]) Strays {
	if left == nil {
		return Strays{until: until, unheard: true}
	}
	landing, land := context.WithCancel(context.Background())
	go func() {
		r := <-left
		if fault, _ := lua.Classify(r.err); r.err == nil || fault != lua.Unanswered {
			land()
		}
	}()
	return Strays{until: until, landings: []context.Context{landing}}
}
