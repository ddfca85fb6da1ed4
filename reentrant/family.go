package reentrant

import (
	"sync"

	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
)

// Family is what the mutexes of one client share: for each name in use, who of
// this client waits for it. Users have it inside of their redlatch.Client.
type Family struct {
	session *session.Session
	book    *mutex.Book

	mu     sync.Mutex
	locals map[string]*local
}

// NewFamily makes the family of one client, which has one book for all its
// mutexes.
func NewFamily(b *mutex.Book) *Family {
	return &Family{session: b.Session, book: b, locals: make(map[string]*local)}
}

// enter returns the local state of a name and counts the caller as a user.
func (f *Family) enter(name string) *local {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.locals[name]
	if l == nil {
		l = &local{Record: f.book.Enter(name)}
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
	if !last {
		return
	}
	f.book.Leave(name, l.Record)
	if l.sub != nil {
		l.sub.Close()
	}
}
