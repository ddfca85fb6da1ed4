// Package owner records in a context which locks the context may re-enter.
//
// Goroutines do not own locks. Go hides their identity on purpose, and work moves between
// goroutines. Libraries that tied locks to threads release the wrong lock.
package owner

import "context"

// Owner owns one fresh grant of a lock. If [New] made it, it owns all grants of a call chain. A
// context carries the innermost owner of its path. The path is that owner, its parent, and so on.
// Owners are compared by pointer, and nothing of them is sent to Redis.
type Owner struct {
	parent *Owner
	beside *Owner // another path that joins here; see ContextFor
	chain  bool   // made by New: it owns every lock that is acquired below it
}

type contextKey struct{}

// New returns an owner of a whole call chain. It has no parent.
func New() *Owner { return &Owner{chain: true} }

// ForAcquire returns the owner for a lock that is acquired with ctx: the owner of the call chain,
// if ctx has one, or else a new owner below the path of ctx.
func ForAcquire(ctx context.Context) *Owner {
	path := FromContext(ctx)
	if path != nil && path.chain {
		return path
	}
	return &Owner{parent: path}
}

// IsChain reports whether other calls may acquire locks for o. If not, only one call ever does.
func (o *Owner) IsChain() bool { return o.chain }

// NewContext returns a context whose path begins with o.
func NewContext(ctx context.Context, o *Owner) context.Context {
	return context.WithValue(ctx, contextKey{}, o)
}

// ContextFor returns a context whose path contains o and the path of ctx. If the path of ctx
// contains o already, ContextFor returns ctx. Then o may be an outer owner that was re-entered, and
// the locks between stay on the path. Usually o was made below the path of ctx. If neither contains
// the other, both paths join in an owner that owns nothing itself.
func ContextFor(ctx context.Context, o *Owner) context.Context {
	path := FromContext(ctx)
	switch {
	case o == nil || path.Includes(o):
		return ctx
	case path == nil || o.Includes(path):
		return NewContext(ctx, o)
	}
	return NewContext(ctx, &Owner{parent: o, beside: path})
}

// FromContext returns the innermost owner of the path of ctx, or nil.
func FromContext(ctx context.Context) *Owner {
	o, _ := ctx.Value(contextKey{}).(*Owner)
	return o
}

// Includes reports whether other is on the path that begins with o. o may be nil.
func (o *Owner) Includes(other *Owner) bool {
	for ; o != nil; o = o.parent {
		if o == other || o.beside.Includes(other) {
			return true
		}
	}
	return false
}

// IsSibling reports whether o and other were made for locks acquired under the same hold. Neither
// of them re-enters the lock of the other.
func (o *Owner) IsSibling(other *Owner) bool {
	return o != other && o.parent != nil && o.parent == other.parent
}
