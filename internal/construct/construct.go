// Package construct has the constructors of the public primitives. They take internal types, so the
// pages of the public packages would show what no program can call. Each primitive sets its
// variable here when the program starts, and only redlatch.New calls it.
package construct

import (
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
)

// Mutexes makes the mutexes of one client and one kind. Of two calls with one name, each returns a
// mutex of its own. If the name or the settings are not usable, every use of the mutex returns an
// error.
type Mutexes interface {
	Mutex(name string, st *settings.Lock) any // a *reentrant.Mutex, or a *fair.Mutex
}

// Semaphores is Mutexes for semaphores.
type Semaphores interface {
	Semaphore(name string, limit int, st *settings.Lock) any // a *semaphore.Semaphore
	Held() []*acquisition.Acquisition                        // all permits that the client has
}

// A client has one registry for its mutexes of both kinds.
var (
	Reentrant func(*mutex.Registry) Mutexes     // set by package reentrant
	Fair      func(*mutex.Registry) Mutexes     // set by package fair
	Semaphore func(*session.Session) Semaphores // set by package semaphore
)
