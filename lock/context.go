package lock

import (
	"context"

	"github.com/redlatch/redlatch/internal/acquisition"
)

// FromContext returns the hold that ctx descends from: the context of a hold, or the one that Do
// gives its function. So a function inside of Do can read the fence.
//
// Of several holds, it is the innermost, of whichever lock. Inside of nested locks, use HoldFrom of
// the mutex, which returns the hold of that lock. A permit of a semaphore is no hold, and hides
// none.
//
// The hold may have ended meanwhile, see [Hold.Trusted]. The function must not unlock the hold of
// its caller. If ctx re-enters no lock, for instance after redlatch.WithOwner, the result is nil
// and false. FromContext sends no command.
func FromContext(ctx context.Context) (*Hold, bool) {
	h, _ := ctx.Value(holdKey{}).(*Hold)
	if h == nil || !h.inner.IsOnPath(ctx) {
		return nil, false
	}
	return h, true
}

// holdKey is the key under which a context has its hold.
type holdKey struct{}

// innermostKey is the key under which a context has its innermost hold, also that of a permit.
type innermostKey struct{}

// keepAlive is a context that refers to its hold. So the hold does not become garbage while work
// goes on that has only the context. keepAlive wraps the context that the acquisition knows,
// instead of being wrapped by it, because that one never becomes garbage.
type keepAlive struct {
	context.Context
	hold *Hold
	own  context.Context // the parent of the hold, if Bind joined its locks with those of another context; otherwise nil
}

// Value returns the hold for holdKey, unless it is that of a permit, and for a search that finds
// it.
func (k keepAlive) Value(key any) any {
	switch key := key.(type) {
	case innermostKey:
		return k.hold
	case holdKey:
		if !k.hold.inner.A.IsPermit() {
			return k.hold
		}
	case *acquisition.Search:
		if key.Finds(k.hold.inner) {
			return k.hold
		}
		if found := k.Context.Value(key); found != nil || k.own == nil {
			return found
		}
		return k.own.Value(key)
	}
	return k.Context.Value(key)
}
