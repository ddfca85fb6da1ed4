package redlatch

import "github.com/redlatch/redlatch/internal/testhook"

// init gives tests in other packages, which see no fields of a client, what they need of them.
func init() {
	testhook.WithoutObservers = option(func(c *config) { c.observers = nil })
	testhook.Of = func(client any) testhook.Client {
		c := client.(*Client)
		return testhook.Client{
			Session:      c.session,
			Held:         c.held,
			NamesInUse:   c.registry.Len,
			FairWaiting:  func() int { return c.fair.(interface{ Waiting() int }).Waiting() },
			PermitsInUse: func() int { return c.semaphores.(interface{ Len() int }).Len() },
		}
	}
}
