// Package testhook lets the module redlatchtest do to a client what no exported method does. Package
// redlatch sets the variables, and only redlatchtest calls it.
package testhook

import (
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/session"
)

// Client is what redlatchtest needs of a *redlatch.Client.
type Client struct {
	Session *session.Session
	Held    func() []*acquisition.Acquisition // all locks and permits that the client has
}

// WithoutObservers is a redlatch.Option that takes back every WithObserver before it. The package redlatch sets
// it, because nobody else can make an option.
var WithoutObservers any

// Of returns what redlatchtest needs of a *redlatch.Client that redlatch.New made. The package redlatch
// sets it, because nobody else sees the fields of a client.
var Of func(client any) Client
