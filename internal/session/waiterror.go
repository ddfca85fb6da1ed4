package session

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch/internal/oneline"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// WaitEnd describes a wait that ended without a grant.
type WaitEnd struct {
	Operation   Operation
	Err         error // the error of the last command, or why the wait ended between two commands
	LastFailure error // why no call could ask Redis lately; nil: Redis could be asked
	Blocked     bool  // Redis has answered that somebody is in the way
	NotAcquired error // the error that says who is in the way
}

// WaitError returns the error, for users, of a wait that ended without a grant.
//
// If ctx lives, the error is ErrClosed if the client closes, and otherwise e.Err.
//
// If ctx has ended and nothing had failed before, the error is NotAcquired. The exception is a wait
// that ended during a command, while Redis had not answered yet that somebody is in the way. The
// error is then that of the command. If redlatch's own time limit ended before the command was
// sent, the error is NotAcquired too: other calls of this client were in the way.
//
// If ctx has ended and something had failed, the error is that of the last command, because the
// command may have been granted. If the wait did not end during a command, the error is
// ErrUnavailable, and says why Redis could not be asked lately.
func (s *Session) WaitError(ctx context.Context, e WaitEnd) error {
	var failed *lockerr.OpError
	isOp := errors.As(e.Err, &failed)
	nothingFailed := e.LastFailure == nil && !errors.As(e.Err, new(failedEarlier)) // until the end came
	switch {
	case ctx.Err() == nil && s.IsClosing():
		return &lockerr.OpError{Kind: lockerr.ErrClosed, Op: e.Operation.Op, Name: e.Operation.Name}
	case ctx.Err() == nil:
		return e.Err
	case nothingFailed && (e.Blocked || !isOp || failed.Attempts == 0 && EndedByOwnLimit(ctx)):
		return e.NotAcquired
	case isOp && (failed.Kind != nil || nothingFailed): // without a kind, the context ended before anything was asked
		return e.Err
	}
	return &lockerr.OpError{Kind: lockerr.ErrUnavailable, Op: e.Operation.Op, Name: e.Operation.Name, Err: oneline.Errors(Cause(ctx), hideTimeout(e.LastFailure))}
}

// isClosed reports whether an attempt found the go-redis client closed. Its error then need not add
// that there was no connection.
func isClosed(err error) bool {
	fault, _ := lua.Classify(err)
	return fault == lua.Closed
}
