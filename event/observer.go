package event

import "context"

// Observer is notified of events. The package documentation says in which goroutines.
type Observer interface {
	// Observe is called with each event. It must not block, so it must not lock. Several goroutines
	// may call it at once. It must ignore kinds that it does not know, because later versions have
	// more.
	//
	// ctx is that of the call, for its values: it may have ended. For an event of no call it is
	// empty.
	//
	// A panic of an observer is recovered. The client logs the first one.
	Observe(ctx context.Context, e Event)
}

// Func is a function as an Observer.
type Func func(ctx context.Context, e Event)

// Observe calls f.
func (f Func) Observe(ctx context.Context, e Event) { f(ctx, e) }
