package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/oneline"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// Operation describes one command with its retries, see [Do].
type Operation struct {
	Op, Name       string          // for errors: "lock", "orders:42"
	Primitive      event.Primitive // for observers; 0: any mutex
	AttemptTimeout time.Duration   // how long an attempt usually may go unanswered, see timeoutFor
	StopOnClose    bool            // Do gives up when the client begins to close, and else when closing gives up
	RetryRefused   bool            // retry even if Redis refuses, as releases do
	NeverVoid      bool            // the script ignores the void-after time
	Once           bool            // Do gives up when the first attempt has failed; see SingleAttempt
	Observer       AttemptObserver // gets each attempt's error or nil, while ctx lives; may be nil
	MaxBackoff     time.Duration   // the longest pause, up to half a second; 0: half a second

	// Window is the time for which a grant or place that an attempt gets in Redis certainly lasts.
	// It counts from the first attempt that may have run. After it, Do sends no attempt, and the
	// attempts in flight are void: Redis could give the same id a second grant or place. 0: no such
	// limit.
	Window time.Duration
	// Share is how long a grant certainly lasts that an earlier command may have got. Unlike
	// Window, its end does not end the operation. The first attempts get only a part of Share or
	// Window, whichever is longer, so that a lost attempt leaves time for another. 0: only Window
	// counts.
	Share time.Duration
	// Adaptive is what earlier operations of the same wait have measured of the link. Only one
	// goroutine may use it. nil: nothing is measured.
	Adaptive *AdaptiveTimeout
	// MaybeApplied says that an earlier operation of the same request may have taken effect.
	MaybeApplied bool
	// Wait goes with each command. Only Acknowledge sets it.
	Wait *sender.Wait
}

// AttemptObserver learns how the last attempt of an operation failed, or that it did not: nil.
type AttemptObserver interface{ SetLastFailure(err error) }

// ErrWindowExpired ends an operation whose Window is over. The caller must give up its id. It may
// ask again under a fresh one.
var ErrWindowExpired = errors.New("not answered for as long as what it got would stand")

// Answer is the result of an operation.
type Answer[T any] struct {
	Value    T
	Sent     time.Time // before the last attempt was sent
	First    time.Time // before the first attempt was sent that may have taken effect
	InFlight InFlight  // its unanswered attempts

	Acknowledged int // how many replicas have what the last attempt wrote; only with Operation.Wait
}

// Do calls send until Redis answers an attempt. It gives up if ctx ends, if the window is over, or
// if the client closes; see StopOnClose. It also gives up if Redis answers with an error that
// another attempt does not cure, or if the go-redis client was closed. Closing waits for an
// operation without StopOnClose, and ends it when it cannot wait any longer.
//
// Do returns as soon as ctx ends, even if no answer came; a direct attempt may take up to
// sender.DirectFor longer. An attempt without an answer stays in flight, and Do sends another one.
// So a script must tolerate that it runs twice. voidAfter is the void-after time of the attempt.
//
// send runs in the goroutine of the caller. It sends by rdb, which goes through package sender. If
// the command is left behind there, send gets sender.ErrUnanswered.
//
// The error is a *lockerr.OpError. Its kind is ErrUnavailable if no attempt can have taken effect,
// and ErrIndeterminate if one may have. It is ErrRefused if Redis refused the command, and
// ErrClosed if the client or the go-redis client closed. The error also matches the end of ctx, and
// ErrWindowExpired if the window is over. If ctx had ended before Do, the error contains only the
// end of ctx. For a release, which does not stop when the client closes, and if redlatch's own time
// limit ended ctx, its kind is ErrUnavailable. Otherwise it has no kind.
func Do[T any](ctx context.Context, s *Session, c Operation, send func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (T, error)) (Answer[T], error) {
	var out Answer[T]
	ctx = withoutEndlessDeadline(ctx)
	if !c.StopOnClose {
		s.tasks.add()
		defer s.tasks.done()
	}
	if err := c.errBeforeStart(ctx, s); err != nil {
		return out, err
	}
	var failed failure
	for attempts := 0; ; attempts++ {
		out.Sent = time.Now()
		if !failed.maybeApplied {
			out.First = out.Sent
		}
		since := out.Sent.Sub(out.First)
		to := s.serverFor(c.Name)
		limit := c.timeoutFor(since, to.link.minTimeout())
		valid := c.validFor(since, limit)
		if valid <= 0 {
			c.Adaptive.onExpired(c.Window)
			return out, failed.count(c.opError(ctx, s, lockerr.ErrIndeterminate, failed.cause(ErrWindowExpired)))
		}
		a := s.attempt(ctx, to, limit, c)
		if a.Direct { // so that what it gives up takes effect before another attempt, or never
			valid = min(valid, sender.DirectFor)
		}
		voidAfter := to.clock.now().Add(valid)
		v, err := runAttempt(ctx, s, c.Name, to, a, voidAfter, send)
		out.Value, out.Acknowledged = v, a.Acknowledged
		if errors.Is(err, errVoid) && attempts < 2 {
			continue // the reply has set the clock
		}
		lives := !isOver(ctx)
		if c.Observer != nil && lives {
			c.Observer.SetLastFailure(err)
		}
		took := time.Since(out.Sent)
		if err != nil && failed.add(err, a.Unsent, out.Sent) {
			out.InFlight = out.InFlight.Merge(newInFlight(&to.clock, voidAfter, a.Abandoned))
		}
		if err == nil {
			c.Adaptive.onAnswer(took)
			to.link.onPromptAnswer(took)
			return out, nil
		}
		failed.beforeEnd = failed.beforeEnd || lives
		if failed.isFinal(c) || !s.backoff(ctx, c, attempts) {
			failed.maybeApplied = failed.maybeApplied || c.MaybeApplied
			err = failed.cause(nil)
			if failed.beforeEnd || c.MaybeApplied {
				err = failedEarlier{err}
			}
			return out, failed.count(c.opError(ctx, s, failed.kind(), err))
		}
		s.Observe(ctx, event.Event{Kind: event.Retried, Primitive: c.Primitive, Name: c.Name, Err: err, Duration: took})
	}
}

// errBeforeStart returns the error of an operation that must not send anything, or nil.
func (o Operation) errBeforeStart(ctx context.Context, s *Session) error {
	switch {
	case s.mustStop(o):
		return o.opError(ctx, s, lockerr.ErrClosed, nil)
	case ctx.Err() == nil, o.MaybeApplied:
		return nil
	case o.StopOnClose && !EndedByOwnLimit(ctx):
		return o.opError(ctx, s, nil, nil)
	}
	return o.opError(ctx, s, lockerr.ErrUnavailable, nil) // with a release, the background goes on
}

// timeoutFor returns how long an attempt may go unanswered. since is the time from the first
// attempt that may have run to this one. known is the minimum time that answers are known to need.
//
// Usually this is AttemptTimeout. With a window or a share, the first attempts get less if a
// quarter of it is shorter, so that a lost reply leaves time for another attempt. A later attempt
// gets as long as all attempts before it, or as long as Adaptive says, for a slow server. If known
// is longer than all this, the attempt gets known, up to the window or share, or to four times
// AttemptTimeout.
func (o Operation) timeoutFor(since, known time.Duration) time.Duration {
	const least = 50 * time.Millisecond
	d, longest := o.AttemptTimeout, 4*o.AttemptTimeout
	if share := max(o.Window, o.Share); share > 0 {
		d, longest = min(d, max(share/4, since, o.Adaptive.value(), least)), share
	}
	return max(d, min(known, longest))
}

// AttemptTime returns how long one attempt for the keys of a name may need for its answer. That is
// usual, or the time that answers are known to need, up to four times usual. A caller that gives an
// operation the time of one attempt must give it this time: over a slow link it would otherwise
// never get an answer.
func (s *Session) AttemptTime(name string, usual time.Duration) time.Duration {
	return Operation{AttemptTimeout: usual}.timeoutFor(0, s.serverFor(name).link.minTimeout())
}

// validFor returns how long after its sending an attempt may still run in Redis. since is the time
// from the first attempt that may have run to this one, and limit is what timeoutFor returned. The
// result is 0 or less if the window is over.
func (o Operation) validFor(since, limit time.Duration) time.Duration {
	valid := max(o.AttemptTimeout, limit)
	if o.Window == 0 {
		return valid
	}
	return min(valid, o.Window-since)
}

// failure collects how the attempts of an operation failed.
type failure struct {
	maybeApplied bool // an attempt may have taken effect
	unclear      bool // the last error leaves the outcome open, and a retry would end the same way
	closed       bool // the go-redis client was closed
	attempts     int
	began        time.Time // of the first attempt
	beforeEnd    bool      // an attempt failed before the context of the operation ended

	last     *failedAttempt
	specific *failedAttempt // the last one whose error says more than that time ran out
	refused  *failedAttempt // the last one that the server answered, if it refused the command
}

// failedAttempt is one attempt that failed. Its address tells it from others. The errors of hooks
// may have types that Go cannot compare.
type failedAttempt struct{ err error }

// add records how an attempt failed, and reports whether the attempt may still take effect. An
// attempt that timed out leaves an earlier refusal as it is. A connection error clears it.
func (f *failure) add(err error, unsent bool, sent time.Time) bool {
	if f.attempts++; f.attempts == 1 {
		f.began = sent
	}
	fault, code := lua.Classify(err)
	f.last = &failedAttempt{err}
	if !errors.Is(err, sender.ErrUnanswered) && !isEndOfContext(err) {
		f.specific = f.last
	}
	f.unclear, f.closed = false, fault == lua.Closed
	switch {
	case errors.Is(err, errVoid):
		f.refused = nil
	case fault == lua.NotRun, fault == lua.Closed:
		// An error without an answer of a server is usually a dial error. But a hook may return
		// such an error after the command ran.
		f.refused = nil
		fromServer := fault == lua.NotRun && code != ""
		return !fromServer && !unsent
	case fault == lua.Refused, fault == lua.Failed && unsent: // unsent: an answer to the login
		f.refused = f.last
	case fault == lua.Failed, errors.Is(err, sender.ErrGoexit):
		f.refused = nil
		f.unclear, f.maybeApplied = true, f.maybeApplied || !unsent
		return !unsent
	case fault == lua.Unanswered:
		f.maybeApplied = f.maybeApplied || !unsent
		return true
	}
	return false
}

// count adds to the error how many attempts failed, and in what time.
func (f *failure) count(err *lockerr.OpError) *lockerr.OpError {
	if f.attempts > 0 {
		err.Attempts, err.Elapsed = f.attempts, time.Since(f.began)
	}
	return err
}

// isFinal reports whether there must be no other attempt.
func (f *failure) isFinal(c Operation) bool {
	return f.closed || c.Once || !c.RetryRefused && (f.refused != nil || f.unclear)
}

// kind returns the kind of the error that the operation ends with.
func (f *failure) kind() error {
	switch {
	case f.maybeApplied:
		return lockerr.ErrIndeterminate
	case f.closed:
		return lockerr.ErrClosed
	case f.refused != nil:
		return lockerr.ErrRefused
	}
	return lockerr.ErrUnavailable
}

// cause returns the error to show beside the kind. That is end, or the error of the last attempt if
// end is nil. If this error only says that time ran out, cause puts the last error that says more
// before it. cause also adds the refusal, unless the result already shows it.
func (f *failure) cause(end error) error {
	cause, shown := end, (*failedAttempt)(nil)
	if end == nil {
		cause, shown = f.last.err, f.last
	}
	if f.specific != nil && f.specific != shown {
		cause, shown = oneline.Errors(f.specific.err, cause), f.specific
	}
	if f.refused == nil {
		return cause
	}
	refusal := f.refused.err
	if f.maybeApplied {
		refusal = fmt.Errorf("%w: %w", lockerr.ErrRefused, refusal)
	}
	if f.refused == shown {
		return refusal
	}
	return oneline.Errors(refusal, cause)
}

// failedEarlier marks the error of an operation that failed in some way before its context ended.
// So the end of the context is not the only reason.
type failedEarlier struct{ error }

func (t failedEarlier) Unwrap() error { return t.error }

// attempt begins an attempt of an operation. It ends when limit has passed, or if it is direct
// after sender.DirectFor. A direct attempt is so short that it needs a fresh guess of the server's
// clock, or it may be void.
//
// When the client begins to close, the attempt still waits for the answer, until closing cannot
// wait any longer. If it ended earlier, Redis could make the grant after the client's release of
// it.
func (s *Session) attempt(ctx context.Context, to *server, limit time.Duration, c Operation) *sender.Attempt {
	byWorker := ctx.Value(byWorkerKey{}) != nil || !to.clock.isFresh() && !(c.NeverVoid && to.clock.isKnown())
	a := to.sender.Attempt(limit, s.tasks.context().Done(), byWorker)
	a.Wait = c.Wait
	return a
}

type byWorkerKey struct{}

// ByWorker returns a context for operations in goroutines of the library. Workers send their
// attempts, because a hook of go-redis may end the goroutine that sends.
func ByWorker(ctx context.Context) context.Context {
	return context.WithValue(ctx, byWorkerKey{}, true)
}

type singleAttemptKey struct{}

// SingleAttempt returns a context for an operation that is changed with [Operation.ForContext]. The
// operation ends when its first attempt has failed. It still waits for the answer to an attempt for
// as long as it may.
func SingleAttempt(ctx context.Context) context.Context {
	return context.WithValue(ctx, singleAttemptKey{}, true)
}

// ForContext returns the operation as it must be done with ctx.
func (o Operation) ForContext(ctx context.Context) Operation {
	o.Once = ctx.Value(singleAttemptKey{}) != nil
	return o
}

// runAttempt makes one attempt. It blocks until Redis answers, ctx ends, or the attempt ends. A
// direct attempt does not notice a cancel. An attempt without an answer is left behind.
func runAttempt[T any](ctx context.Context, s *Session, name string, to *server, a *sender.Attempt, voidAfter lua.Time, send func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (T, error)) (T, error) {
	defer a.End()
	began := time.Now()
	v, err := send(ctx, to.link.withEval(a), voidAfter)
	if status, now := serverTimeOf(v); err == nil && now != 0 {
		err = s.checkReply(name, status, now)
	}
	if a.Abandoned != nil {
		s.abandonedAttempts.add()
		a.Abandoned.OnEnd(func(err error) {
			to.link.onLateAnswer(err, time.Since(began))
			s.abandonedAttempts.done()
		})
	}
	s.topology.onFailure(ctx, err)
	if err != nil && a.Unsent && !isClosed(err) {
		err = oneline.Errors(err, errUnsent)
	}
	return v, err
}

// closeSignal returns a channel that is closed when the operation must end because the client
// closes: with StopOnClose when it begins to, and else when closing cannot wait any longer.
func (s *Session) closeSignal(c Operation) <-chan struct{} {
	if c.StopOnClose {
		return s.closing.Done()
	}
	return s.tasks.context().Done()
}

// mustStop reports whether closeSignal is closed. IsClosing is true a moment before.
func (s *Session) mustStop(c Operation) bool {
	return c.StopOnClose && s.IsClosing() || s.tasks.context().Err() != nil
}

// panicked returns the error of an attempt that panicked. It does not pass the panic on to the
// caller. The caller may have left, or may be a goroutine of the library, and it has to release
// what the command may have acquired. Only the first panic of a client is logged, with its stack.
// The retries of a release would otherwise fill the log.
func (s *Session) panicked(p any) error {
	if s.panicLogged.CompareAndSwap(false, true) {
		s.Write(slog.LevelError, "redlatch: a command panicked",
			slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
	}
	return fmt.Errorf("%w: panic: %v", sender.ErrGoexit, p)
}

// errUnsent is added to the error of an attempt that was not written to a connection.
var errUnsent = errors.New("no connection in time")

// errVoid is the failure of a command that arrived after its void-after time. The client did not
// know the server's clock yet, or somebody set that clock.
var errVoid = errors.New("the server's clock is ahead of the guess")

// serverTimeOf returns the status of a command and the server's time, if the reply has them. It
// names the types, because a method call by an interface would put each reply on the heap.
func serverTimeOf(reply any) (lua.Status, lua.Time) {
	switch r := reply.(type) {
	case lua.AcquireReply:
		return r.Status, r.Now
	case lua.ReleaseReply:
		return r.Status, r.Now
	case lua.TransferReply:
		return r.Status, r.Now
	case lua.JoinReply:
		return r.Status, r.Now
	case lua.KeepReply:
		return r.Status, r.Now
	case lua.ResizeReply:
		return r.Status, r.Now
	}
	return 0, 0
}

// checkReply sets the guess of the server's clock from a reply to a command for the keys of a name.
// It returns an error for a void command. With this error, Do sends the command again, with a new
// void-after time.
func (s *Session) checkReply(name string, status lua.Status, now lua.Time) error {
	s.serverFor(name).clock.set(now)
	if status == lua.Void {
		return errVoid
	}
	return nil
}

// backoff blocks before the next attempt, longer each time. A part of the pause is random, so that
// many waiters do not ask a recovering server at the same time. backoff reports whether there may
// be another attempt. It returns false as soon as ctx ends, or the client closes and c has
// StopOnClose.
func (s *Session) backoff(ctx context.Context, c Operation, attempts int) bool {
	const first, most = 5 * time.Millisecond, 500 * time.Millisecond
	d := min(first<<min(attempts, 10), most)
	if c.MaxBackoff > 0 {
		d = min(d, c.MaxBackoff)
	}
	d = d/2 + rand.N(d/2)
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
	case <-s.closeSignal(c):
	}
	return false
}

// opError returns the error of an operation that failed.
func (o Operation) opError(ctx context.Context, s *Session, kind, err error) *lockerr.OpError {
	if s.mustStop(o) {
		return &lockerr.OpError{Kind: lockerr.ErrClosed, Op: o.Op, Name: o.Name}
	}
	return &lockerr.OpError{Kind: kind, Op: o.Op, Name: o.Name, Err: oneline.Errors(Cause(ctx), hideTimeout(err))}
}
