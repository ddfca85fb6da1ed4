package redlatch

import (
	"context"

	"github.com/redlatch/redlatch/internal/owner"
)

// WithOwner starts a call chain: locks taken with the returned context, or with
// one derived from it, belong to one owner, who may take each of them again. A
// middleware would call it once for each request. A ctx that belongs to a chain
// already is taken out of it: work that is handed to another goroutine and must
// not share the locks of its starter begins so.
//
// Without it, each acquire is a chain of its own, which only the context of its
// hold continues.
func WithOwner(ctx context.Context) context.Context {
	return owner.With(ctx, owner.New())
}
