package redlatch

import (
	"context"

	"github.com/redlatch/redlatch/internal/owner"
)

// WithOwner makes one owner of a whole call chain: it owns all locks that are acquired
// with the returned context, or with one derived from it, and re-enters each of them
// with any of these contexts.
//
// Without WithOwner, a lock is re-entered only with the context of its hold, or with one
// derived from it. That is enough for most programs. Use WithOwner where a lock has to
// be re-entered by code that does not get the context of the hold.
//
// The price: goroutines with contexts of one chain do not exclude each other, from no
// lock. All of them can be inside at the same time. Start a chain of its own in each
// goroutine that must wait for the others.
//
// If ctx re-enters locks already, the returned context does not: work that must not
// share the locks of its starter begins with WithOwner too.
func WithOwner(ctx context.Context) context.Context {
	return owner.With(ctx, owner.New())
}
