package sender

import (
	"errors"
	"sync"
)

// AbandonedCommand is a command whose caller has left, and that ends later.
type AbandonedCommand struct {
	mu        sync.Mutex
	done      bool
	err       error
	callbacks []func(err error)
}

// ErrNotSent is the end of a command that was left before any worker took it.
var ErrNotSent = errors.New("not sent any more")

// OnEnd has f called when the command ends, with its error: nil for an answer, ErrNotSent,
// or what go-redis said. f must not block.
func (l *AbandonedCommand) OnEnd(f func(err error)) {
	l.mu.Lock()
	if !l.done {
		l.callbacks = append(l.callbacks, f)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	f(l.err)
}

// End says that the command has ended.
func (l *AbandonedCommand) End(err error) {
	l.mu.Lock()
	l.done, l.err = true, err
	l.mu.Unlock()
	for _, f := range l.callbacks { // nobody adds one any more
		f(err)
	}
}
