package redlatch

import "github.com/redlatch/redlatch/lockerr"

// These are the errors of redlatch, for errors.Is. Package lockerr says what each means.
var (
	ErrNotAcquired   = lockerr.ErrNotAcquired
	ErrNotReplicated = lockerr.ErrNotReplicated
	ErrRemoved       = lockerr.ErrRemoved
	ErrLost          = lockerr.ErrLost
	ErrNotHeld       = lockerr.ErrNotHeld
	ErrIndeterminate = lockerr.ErrIndeterminate
	ErrUnavailable   = lockerr.ErrUnavailable
	ErrRefused       = lockerr.ErrRefused
	ErrClosed        = lockerr.ErrClosed
	ErrConfig        = lockerr.ErrConfig
)

// These are the typed errors of redlatch, for errors.As.
type (
	// NotAcquiredError says who has the lock.
	NotAcquiredError = lockerr.NotAcquiredError
	// NotReplicatedError says how many replicas acknowledged a grant.
	NotReplicatedError = lockerr.NotReplicatedError
	// LostError says which hold was lost, and how.
	LostError = lockerr.LostError
	// OpError says which operation failed, on which lock.
	OpError = lockerr.OpError
	// LimitError says which limits of a semaphore differ.
	LimitError = lockerr.LimitError
	// ConfigError says which value is not usable, and why.
	ConfigError = lockerr.ConfigError
)
