// Package owner says in a context which locks may be re-entered with it.
//
// Goroutines do not own locks: Go hides their identity on purpose, work moves between
// goroutines, and libraries that tied locks to threads release the wrong one.
package owner

import "context"

// Owner owns one fresh grant of a lock, or, if it was made by [New], all grants of a
// call chain. A context carries the innermost owner of its path; the path is that
// owner, its parent, and so on. Owners are compared by pointer. Nothing of them is sent
// to Redis.
type Owner struct {
	parent *Owner
	chain  bool // made by New: it owns everything that is acquired below it
}

type contextKey struct{}

// New returns an owner without parent for a whole call chain.
func New() *Owner { return &Owner{chain: true} }

// Of returns the owner of a lock that is acquired with ctx: the call chain's, or else
// a new one below the path of ctx.
func Of(ctx context.Context) *Owner {
	path := From(ctx)
	if path != nil && path.chain {
		return path
	}
	return &Owner{parent: path}
}

// With returns a context whose path begins with o.
func With(ctx context.Context, o *Owner) context.Context {
	return context.WithValue(ctx, contextKey{}, o)
}

// Below returns a context whose path contains o. If the path of ctx contains o already,
// it is kept: o may be an outer owner that was re-entered, and the locks between remain
// on the path.
func Below(ctx context.Context, o *Owner) context.Context {
	if o == nil || From(ctx).Has(o) {
		return ctx
	}
	return With(ctx, o)
}

// From returns the innermost owner of ctx's path, or nil.
func From(ctx context.Context) *Owner {
	o, _ := ctx.Value(contextKey{}).(*Owner)
	return o
}

// Has reports whether other is on the path that begins with o, which may be nil.
func (o *Owner) Has(other *Owner) bool {
	for ; o != nil; o = o.parent {
		if o == other {
			return true
		}
	}
	return false
}

// Sibling reports whether o and other were made for locks acquired under the same hold,
// so that neither re-enters the other's lock.
func (o *Owner) Sibling(other *Owner) bool {
	return o != other && o.parent != nil && o.parent == other.parent
}
