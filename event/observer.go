package event

import "context"

// Observer is notified of events.
type Observer interface {
	// Observe is called with each event of a client, one after the other, after the fact. No call
	// waits for it, but if it blocks, it misses events; see [Dropped]. An observer of several
	// clients is called by several goroutines. It must ignore kinds that it does not know, because
	// later versions have more.
	//
	// ctx has the values of the call's context, and never ends. For an event of no call it has
	// none.
	//
	// A panic of an observer is recovered. The client logs the first one.
	Observe(ctx context.Context, e Event)
}

// Func is a function as an Observer.
type Func func(ctx context.Context, e Event)

// Observe calls f.
func (f Func) Observe(ctx context.Context, e Event) { f(ctx, e) }
