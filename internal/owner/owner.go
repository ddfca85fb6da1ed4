// Package owner carries the owner of locks, one logical call chain, in a
// context.
//
// A goroutine is no owner: Go hides its identity on purpose, work moves between
// goroutines, and libraries that tied locks to threads release the wrong one.
package owner

import "context"

// Owner is the identity of one call chain. Owners are compared by pointer;
// nothing of them is sent to Redis.
type Owner struct{ _ byte } // not empty: pointers to empty structs may be equal

type contextKey struct{}

// New starts a call chain.
func New() *Owner { return new(Owner) }

// With returns a context that belongs to the chain.
func With(ctx context.Context, o *Owner) context.Context {
	return context.WithValue(ctx, contextKey{}, o)
}

// From returns the chain that ctx belongs to, or nil.
func From(ctx context.Context) *Owner {
	o, _ := ctx.Value(contextKey{}).(*Owner)
	return o
}
