// Package testhook lets tests do to a client what no exported method does. Package redlatch sets
// the variables. Only the module redlatchtest and package internal/test/stage call it.
package testhook

import (
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/session"
)

// Client is what tests need of a *redlatch.Client.
type Client struct {
	Session      *session.Session
	Held         func() []*acquisition.Acquisition // all locks and permits that the client has
	NamesInUse   func() int                        // names for which the client has a lock state
	FairWaiting  func() int                        // goroutines that wait in queues of fair mutexes, or are about to
	PermitsInUse func() int                        // permits that the client has or waits for
}

// WithoutObservers is a redlatch.Option that takes back every WithObserver before it. The package
// redlatch sets it, because nobody else can make an option.
var WithoutObservers any

// Of returns what tests need of a *redlatch.Client that redlatch.New made. The package redlatch
// sets it, because nobody else sees the fields of a client.
var Of func(client any) Client
