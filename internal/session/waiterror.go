package session

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch/internal/joined"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// ErrUnanswered is the failure of an attempt that was not answered in time.
var ErrUnanswered = sender.ErrUnanswered

// WaitEnd describes a wait that ended without a grant.
type WaitEnd struct {
	Operation   Operation
	Err         error // of its last command, or why it ended between two commands
	LastFailure error // why Redis could not be asked lately, by any call; nil when it could
	Blocked     bool  // Redis has answered that somebody is in the way
	NotAcquired error // the error for users that says who is in the way
}

// WaitError returns the error, for users, of a wait that ended. If Redis could not be asked lately,
// the error says so, and not that somebody is in the way. If the last command failed, it is that
// of the command: it may have been granted, so the error must not say that nothing was changed. But
// if nothing was wrong until the wait ended, during a command, the error says who was in the way.
func (s *Session) WaitError(ctx context.Context, e WaitEnd) error {
	var failed *lockerr.OpError
	isOp := errors.As(e.Err, &failed)
	smooth := e.LastFailure == nil && !errors.As(e.Err, new(failedEarlier)) // until the end came
	switch {
	case ctx.Err() == nil && s.IsClosing():
		return &lockerr.OpError{Kind: lockerr.ErrClosed, Op: e.Operation.Op, Name: e.Operation.Name}
	case ctx.Err() == nil:
		return e.Err
	case smooth && (e.Blocked || !isOp):
		return e.NotAcquired
	case isOp && (failed.Kind != nil || smooth): // without a kind, nothing was asked
		return e.Err
	}
	return &lockerr.OpError{Kind: lockerr.ErrUnavailable, Op: e.Operation.Op, Name: e.Operation.Name, Err: joined.Errors(Cause(ctx), hideTimeout(e.LastFailure))}
}

// isClosed reports whether an attempt found the go-redis client closed. Its error then need not
// say that it got no connection.
func isClosed(err error) bool {
	fault, _ := lua.Classify(err)
	return fault == lua.Closed
}
