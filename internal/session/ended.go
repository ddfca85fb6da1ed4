package session

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch/internal/joined"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// Ended is a wait that ended without what it was for.
type Ended struct {
	Call    Call
	Err     error // of its last question, or why it ended between two questions
	Fault   error // why Redis could not be asked lately, by any call; nil when it could
	Heard   bool  // Redis has said that somebody is in the way
	Refusal error // what that is for users
}

// GaveUp is the error, for users, of a wait that ended. If Redis could not be asked
// lately, that is what it says, and not that somebody is in the way. A question that
// failed speaks for itself: it may have been granted, and then it is not true that
// nothing was changed. But where nothing was wrong before the end came, in the middle
// of a question, what is known is who was in the way.
func (s *Session) GaveUp(ctx context.Context, e Ended) error {
	var failed *lockerr.OpError
	isOp := errors.As(e.Err, &failed)
	smooth := e.Fault == nil && !errors.As(e.Err, new(troubled)) // until the end came
	switch {
	case ctx.Err() == nil && s.IsClosing():
		return &lockerr.OpError{Kind: lockerr.ErrClosed, Op: e.Call.Op, Name: e.Call.Name}
	case ctx.Err() == nil:
		return e.Err
	case smooth && (e.Heard || !isOp):
		return e.Refusal
	case isOp && (failed.Kind != nil || smooth): // without a kind, nothing was asked
		return e.Err
	}
	return &lockerr.OpError{Kind: lockerr.ErrUnavailable, Op: e.Call.Op, Name: e.Call.Name, Err: joined.Errors(Cause(ctx), ownTime(e.Fault))}
}

// isClosed reports whether an attempt found the go-redis client closed. That it got no
// connection says nothing more.
func isClosed(err error) bool {
	fault, _ := lua.Classify(err)
	return fault == lua.Closed
}
