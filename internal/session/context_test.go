package session

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// The window of another call was over, and that ended the context of this call. If a request took
// this for the end of its own window, it would be sent again for ever.
func TestTheWindowOfAnotherCallIsNotOver(t *testing.T) {
	s := New(Config{})
	call := Operation{Op: "lock", Name: "x", AttemptTimeout: time.Second, MaybeApplied: true}
	other := &lockerr.OpError{Kind: lockerr.ErrIndeterminate, Op: "lock", Name: "y", Err: ErrWindowExpired}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("a part of the job failed: %w", other))
	_, err := Do(ctx, s, call, func(ctx context.Context, _ lua.Redis, _ lua.Time) (int, error) { return 0, ctx.Err() })
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrWindowExpired)
}

// asked is a context that notes which of its methods were called.
type asked struct {
	context.Context
	methods map[string]bool
}

func (c asked) Deadline() (time.Time, bool) {
	c.methods["Deadline"] = true
	return c.Context.Deadline()
}

func (c asked) Done() <-chan struct{} {
	c.methods["Done"] = true
	return c.Context.Done()
}

func (c asked) Err() error {
	c.methods["Err"] = true
	return c.Context.Err()
}

func (c asked) Value(key any) any {
	c.methods["Value"] = true
	return c.Context.Value(key)
}

// A context that is missing is refused. One with a method that panics panics at once.
func TestAContextIsTriedOut(t *testing.T) {
	require.NoError(t, CheckContext(t.Context()))
	var wrong *lockerr.ConfigError
	var missing context.Context
	require.ErrorAs(t, CheckContext(missing), &wrong)
	require.Equal(t, "context", wrong.Setting)

	c := asked{t.Context(), map[string]bool{}}
	TouchContext(c)
	require.Len(t, c.methods, 4)
}

// A context that ends by a limit of the library says which, and not that the caller set a deadline.
func TestOwnLimitsSayWhatTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := WithDefaultTimeout(context.Background())
		defer cancel()
		require.NoError(t, Cause(ctx))
		<-ctx.Done()
		require.Equal(t, 5*time.Second, time.Since(began))
		require.EqualError(t, Cause(ctx), "gave up after 5s")
		require.NotErrorIs(t, Cause(ctx), context.DeadlineExceeded)

		ended, end := context.WithCancel(t.Context())
		end()
		detached := DetachedWithTimeout(ended, time.Second)
		defer detached.Release()
		ctx = detached
		require.NoError(t, ctx.Err())
		<-ctx.Done()
		require.EqualError(t, Cause(ctx), "gave up after 1s, of a context that had ended before: context canceled")
		require.ErrorIs(t, Cause(ctx), context.Canceled)
		require.NotErrorIs(t, Cause(ctx), context.DeadlineExceeded)
	})
}

type ownEndsFunc func(cause error) bool

func (f ownEndsFunc) IsOwnEnd(cause error) bool { return f(cause) }

// Where a call ends its own context, what it does goes on until the deadline. All other ends count.
func TestAContextOutlastsOnlyItsOwnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, others := errors.New("own"), errors.New("of others")
		isOwn := ownEndsFunc(func(cause error) bool { return errors.Is(cause, own) })
		ending := func(cause error, limit time.Duration) (ctx context.Context, done func()) {
			parent, stop := t.Context(), func() {}
			if limit > 0 {
				parent, stop = context.WithTimeout(parent, limit)
			}
			parent, end := context.WithCancelCause(parent)
			ctx, cancel := WithoutOwnCancel(parent, isOwn)
			synctest.Wait()
			require.NoError(t, ctx.Err())
			end(cause)
			synctest.Wait()
			return ctx, func() { stop(); cancel() }
		}

		ctx, done := ending(others, time.Minute)
		require.ErrorIs(t, Cause(ctx), others)
		require.ErrorIs(t, Cause(ctx), context.Canceled)
		require.EqualError(t, Cause(ctx), "context canceled; of others")
		done()

		began := time.Now()
		ctx, done = ending(own, time.Minute)
		require.NoError(t, ctx.Err())
		<-ctx.Done()
		require.Equal(t, time.Minute, time.Since(began))
		require.ErrorIs(t, Cause(ctx), context.DeadlineExceeded)
		done()

		ctx, done = ending(own, 0)
		time.Sleep(time.Hour)
		require.NoError(t, ctx.Err())
		done()
		require.Error(t, ctx.Err())

		ctx, done = WithoutOwnCancel(context.Background(), isOwn)
		require.Equal(t, context.Background(), ctx)
		done()
	})
}

// A call learns that the very lock that it takes was lost. The loss of another one is shown, but it
// does not match.
func TestTheCauseOfACallNamesItsOwnLock(t *testing.T) {
	lost := &lockerr.LostError{Name: "x", Reason: "why"}
	permit := &lockerr.LostError{Name: "x", Reason: "why", IsPermit: true}
	for cause, matches := range map[error]map[string]bool{
		lost:                          {"x": true, "y": false},
		fmt.Errorf("a job: %w", lost): {"x": true, "y": false},
		permit:                        {"x": false, "y": false},
		errors.New("something else"):  {"x": false, "": false},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		require.NoError(t, CauseFor(ctx, "x"))
		cancel(cause)
		for name, is := range matches {
			err := CauseFor(ctx, name)
			require.Equal(t, is, errors.Is(err, lockerr.ErrLost))
			require.Equal(t, is, errors.As(err, new(*lockerr.LostError)))
			require.ErrorIs(t, err, context.Canceled)
		}
	}
}

// An error of the library inside of a cause belongs to another call. It is shown, and nothing
// finds it. Errors of others are found.
func TestACauseOfAnotherCallIsShownOnly(t *testing.T) {
	end := func(cause error) error {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		return Cause(ctx)
	}
	for cause, target := range map[error]any{
		&lockerr.OpError{Kind: lockerr.ErrRefused}:    new(*lockerr.OpError),
		&lockerr.NotAcquiredError{Name: "x"}:          new(*lockerr.NotAcquiredError),
		&lockerr.NotReplicatedError{Name: "x"}:        new(*lockerr.NotReplicatedError),
		&lockerr.LostError{Name: "x"}:                 new(*lockerr.LostError),
		&lockerr.LimitError{Name: "x"}:                new(*lockerr.LimitError),
		&lockerr.ConfigError{Setting: "x", Value: 1}:  new(*lockerr.ConfigError),
		failedEarlier{errors.New("it failed before")}: new(failedEarlier),
	} {
		require.ErrorAs(t, cause, target)
		err := end(fmt.Errorf("a job: %w", cause))
		require.False(t, errors.As(err, target), "%T", cause)
		require.ErrorContains(t, err, "a job: ")
		require.ErrorIs(t, err, context.Canceled)
	}
	for _, kind := range operationErrors {
		require.NotErrorIs(t, end(fmt.Errorf("a job: %w", kind)), kind)
	}
	foreign := fmt.Errorf("a job\nwith lines: %w", numbered(7))
	require.ErrorIs(t, end(foreign), foreign)
	require.ErrorContains(t, end(foreign), `a job\nwith lines`)
	var number numbered
	require.ErrorAs(t, end(foreign), &number)
	require.EqualValues(t, 7, number)

	both := fmt.Errorf("a job: %w", context.Canceled)
	require.EqualError(t, end(both), "a job: context canceled")
	require.ErrorIs(t, end(both), both)
	require.NotErrorIs(t, end(fmt.Errorf("%w: %w", context.Canceled, lockerr.ErrLost)), lockerr.ErrLost)
}

type numbered int

func (numbered) Error() string { return "an error with a number" }

// endless is a context by hand, as some programs detach theirs: it never ends, and has the deadline
// of its parent.
type endless struct{ context.Context }

func (endless) Done() <-chan struct{} { return nil }
func (endless) Err() error            { return nil }

// The deadline of a context that never ends is no reason not to end a call.
func TestTheDeadlineOfAnEndlessContextDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		const limit = 3 * time.Second
		isOwn := ownEndsFunc(func(error) bool { return false })
		for _, bound := range []func(ctx context.Context) (context.Context, context.CancelFunc){
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return WithDeadlineReason(ctx, time.Now().Add(limit), "over")
			},
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				b := WithDeadlineReasonWithoutOwnCancel(ctx, isOwn, time.Now().Add(limit), "over")
				return b, b.Release
			},
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, stop := WithoutOwnCancel(ctx, isOwn)
				ctx, cancel := context.WithTimeoutCause(ctx, limit, ownDeadline{why: "over"})
				return ctx, func() { cancel(); stop() }
			},
		} {
			began := time.Now()
			ctx, cancel := bound(endless{parent})
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.Equal(t, limit, time.Until(deadline))
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			require.Equal(t, limit, time.Since(began))
			require.EqualError(t, Cause(ctx), "over")
			cancel()
		}
	})
}

// A command must not get that deadline either: go-redis would give up each attempt.
func TestAnOperationIgnoresTheDeadlineOfAnEndlessContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.Sleep(time.Minute)
		_, err := Do(endless{parent}, New(Config{}), Operation{Op: "lock", Name: "x", AttemptTimeout: time.Second},
			func(ctx context.Context, _ lua.Redis, _ lua.Time) (int, error) {
				_, ok := ctx.Deadline()
				require.False(t, ok)
				return 0, nil
			})
		require.NoError(t, err)
	})
}
