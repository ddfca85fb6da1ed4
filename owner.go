package redlatch

import (
	"context"

	"github.com/redlatch/redlatch/internal/owner"
)

// WithOwner makes one owner of a whole call chain. It owns all locks that are acquired with the
// returned context, or with one derived from it. Each of these contexts re-enters each of these
// locks.
//
// Without WithOwner, only the context of its hold, or one derived from it, re-enters a lock. That
// is enough for most programs. Use WithOwner if code has to re-enter a lock and does not get the
// context of the hold.
//
// The price: goroutines with contexts of one chain do not exclude each other from any lock. All of
// them can be inside at the same time. If goroutines must wait for each other, start a chain of its
// own in each of them.
//
// If ctx already re-enters locks, the returned context does not. So work that must not share the
// locks of its starter also begins with WithOwner.
//
// WithOwner panics if ctx is nil.
func WithOwner(ctx context.Context) context.Context {
	if ctx == nil {
		panic("redlatch: WithOwner: the context must not be nil")
	}
	return owner.NewContext(ctx, owner.New())
}
