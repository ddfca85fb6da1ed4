package reentrant

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/session"
)

// Family is what the mutexes of one client share: for each name in use, what
// this client knows of it.
type Family struct {
	session *session.Session

	mu     sync.Mutex
	locals map[string]*local
}

// NewFamily makes the family of one client.
func NewFamily(s *session.Session) *Family {
	return &Family{session: s, locals: make(map[string]*local)}
}

// enter returns the local state of a name and counts the caller as a user.
func (f *Family) enter(name string) *local {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.locals[name]
	if l == nil {
		l = &local{}
		f.locals[name] = l
	}
	l.refs++
	return l
}

// leave ends the use that enter began. The last user ends the subscription, so
// that nothing is kept for names that are not in use.
func (f *Family) leave(name string, l *local) {
	f.mu.Lock()
	l.refs--
	last := l.refs == 0
	if last {
		delete(f.locals, name)
	}
	f.mu.Unlock()
	if last && l.sub != nil {
		l.sub.Close()
	}
}

// Len is the number of names in use.
func (f *Family) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.locals)
}

// Close gives back all that is held. The session must have begun to close, so
// that nothing new comes.
func (f *Family) Close(ctx context.Context) error {
	const atOnce = 16 // a client that holds very many closes in bounded pieces
	var g errgroup.Group
	g.SetLimit(atOnce)
	var mu sync.Mutex
	var all []error
	for _, a := range f.held() {
		g.Go(func() error {
			if err := a.Close(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, err)
			}
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(all...)
}

func (f *Family) held() []*acquisition.Acquisition {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*acquisition.Acquisition
	for _, l := range f.locals {
		l.mu.Lock()
		all = append(all, l.held...)
		l.mu.Unlock()
	}
	return all
}
