package sender

import (
	"errors"
	"sync"
)

// Late is a command that was left behind, and ends later.
type Late struct {
	mu    sync.Mutex
	ended bool
	err   error
	then  []func(err error)
}

// ErrNotSent is the end of a command that was left before any worker took it.
var ErrNotSent = errors.New("not sent any more")

// Then has f called when the command ends, with its error: nil for an answer, ErrNotSent,
// or what go-redis said. f must not block.
func (l *Late) Then(f func(err error)) {
	l.mu.Lock()
	if !l.ended {
		l.then = append(l.then, f)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	f(l.err)
}

// End says that the command has ended.
func (l *Late) End(err error) {
	l.mu.Lock()
	l.ended, l.err = true, err
	then := l.then
	l.then = nil
	l.mu.Unlock()
	for _, f := range then {
		f(err)
	}
}
