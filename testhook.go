package redlatch

import "github.com/redlatch/redlatch/internal/testhook"

// init gives the module redlatchtest, which sees no fields of a client, what it needs of them.
func init() {
	testhook.WithoutObservers = option(func(c *config) { c.observers = nil })
	testhook.Of = func(client any) testhook.Client {
		c := client.(*Client)
		return testhook.Client{Session: c.session, Held: c.held}
	}
}
