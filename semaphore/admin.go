package semaphore

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/keptid"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/waitqueue"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

// Info is the state of a semaphore at one moment, for people and dashboards. A program must not act
// on it: it may be out of date when it arrives.
type Info struct {
	Name     string
	Limit    int // 0: nobody has used it lately, and none is known
	Declared int // what programs pass; after a Resize other than Limit
	InUse    int // units; above Limit after the limit was lowered
	Waiting  int // requests in the queue; includes expired ones that were not dropped yet
	Holders  []Holder
}

// Holder is one permit, as Redis showed it.
type Holder struct {
	ID          string // of the permit
	Units       int
	Description string        // the description of the holder
	Since       time.Time     // about when it was granted, by the server's clock; zero if that is not known
	Remaining   time.Duration // of the lease, which is renewed while its process lives
}

// IsKept reports whether nobody has the permit, and Redis keeps its units after a ReleaseAfter. ID
// is then the id under which Redis keeps them, and Description is that of the last holder.
func (h *Holder) IsKept() bool { return keptid.Is(h.ID) }

// Inspect reads the limit, the units in use, how many requests wait, and who has permits. It shows
// five hundred permits at most, and fewer if permits have several units. Permits with few units
// come first. Inspect costs one round trip and changes nothing. Errors: lockerr.ErrUnavailable,
// ErrIndeterminate (replies were lost), ErrRefused, ErrConfig, ErrClosed.
func (s *Semaphore) Inspect(ctx context.Context) (Info, error) {
	const show = 500
	answer, err := runOperation(ctx, s, session.Operation{Op: "inspect"}, func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.InspectPermitsReply, error) {
		return lua.InspectPermits(ctx, rdb, s.scriptKeys(), show)
	})
	if err != nil {
		return Info{}, err
	}
	r := answer.Value
	info := Info{Name: s.keys.Name, Limit: r.Limit, Declared: r.Declared, InUse: r.InUse, Waiting: r.Waiting}
	for _, h := range r.Held {
		shown := Holder{ID: h.Acquisition, Units: h.Units, Description: h.Description, Remaining: h.Remaining}
		if h.Since != 0 {
			shown.Since = time.UnixMicro(int64(h.Since))
		}
		info.Holders = append(info.Holders, shown)
	}
	return info, nil
}

// Resize sets the limit for all programs. The new limit applies immediately, and until the next
// Resize. But Redis forgets it when nobody has used the semaphore for the time of
// redlatch.WithFenceRetention, and then the limit that programs pass counts again. To keep a limit
// for good, also deploy it. If the limit is raised, waiters that now fit are served. If it is
// lowered, no permit is taken away, and new requests wait until enough permits have ended. Waiters
// for more than the new limit get a *lockerr.LimitError, at their next heartbeat at the latest.
// Until then they keep their places, and those behind them wait.
//
// Programs that pass the limit of this Semaphore value go on, and so do those that pass the new
// limit. So Resize serves two purposes: to deviate for a while, and to move from one limit to the
// next while programs are deployed.
//
// Resize returns the limit before, or 0 if none was known. If the answer to the first attempt was
// lost, it may return the new limit instead.
//
// A Resize that has returned nil never undoes a later one, even if an unanswered command of it
// arrives late. Two at the same time take effect one after the other. If a Resize loses the answer
// to its command, it may set its limit again until it returns, also after the other.
//
// Resize costs one round trip. It serves fifty waiters at most; one more command for each fifty
// that are left follows in the background. It costs one more round trip if the client's guess of
// the server's clock is behind the last Resize, as that of a new client is. Errors:
// lockerr.ErrUnavailable, ErrIndeterminate, ErrRefused, ErrConfig.
func (s *Semaphore) Resize(ctx context.Context, limit int) (before int, err error) {
	if err := checkUnits("limit", limit); err != nil {
		return 0, err
	}
	if err := s.check(ctx); err != nil {
		return 0, err
	}
	begun := &stamp{manager: s.manager, name: s.keys.Name}
	for call := (session.Operation{Op: "resize"}); ; {
		answer, err := s.sendResize(ctx, call, limit, begun)
		if err != nil {
			return 0, err
		}
		if answer.Value.Status != lua.Superseded {
			if answer.Value.More {
				s.continueInBackground(func(ctx context.Context) (more bool, err error) {
					answer, err := s.sendResize(ctx, session.Operation{Op: "resize", RetryRefused: true}, limit, begun)
					return answer.Value.More, err // or another Resize took over
				})
			}
			return answer.Value.Before, nil
		}
		// An earlier Resize took over, and the stamp lags; or a Resize took over meanwhile.
		call.MaybeApplied = call.MaybeApplied || answer.InFlight.Any()
		begun = &stamp{manager: s.manager, name: s.keys.Name, after: answer.Value.Stamp}
	}
}

// sendResize sends one command of a resize.
func (s *Semaphore) sendResize(ctx context.Context, call session.Operation, limit int, begun *stamp) (session.Answer[lua.ResizeReply], error) {
	ss := s.manager.session
	return runOperation(ctx, s, call, func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (lua.ResizeReply, error) {
		r, err := lua.Resize(ctx, rdb, lua.ResizeParams{
			Keys: s.scriptKeys(), Limit: limit, Declared: s.limit, VoidAfter: voidAfter, Stamp: begun.forCommand(),
			Retention: ss.FenceRetention, ClientChannels: key.ClientPrefix,
		})
		if err == nil && r.Status == lua.Void {
			begun.wasVoid()
		}
		return r, err
	})
}

// ForceRelease ends one permit by its id, as Inspect shows it, for operators. Its units go to the
// next waiters. ForceRelease returns how many units the permit had, or 0 if there was no such
// permit (any more). If there is no error, the permit has ended in any case. But 0 may also mean
// that this very call ended it: if the answer to a command is lost, the client sends the command
// again, and it then finds nothing.
//
// ForceRelease does not ask the holder. The holder works on until its next renewal finds the loss.
// ForceRelease costs one round trip. It serves fifty waiters at most; one more command for each
// fifty that are left follows in the background. Errors: lockerr.ErrUnavailable, ErrIndeterminate,
// ErrRefused, ErrConfig, ErrClosed.
func (s *Semaphore) ForceRelease(ctx context.Context, id string) (units int, err error) {
	type reply struct {
		units int
		more  bool
	}
	send := func(ctx context.Context, call session.Operation) (reply, error) {
		answer, err := runOperation(ctx, s, call, func(ctx context.Context, rdb lua.Redis, _ lua.Time) (reply, error) {
			had, more, err := lua.ForceReleasePermits(ctx, rdb, s.scriptKeys(), id, s.manager.session.FenceRetention, key.ClientPrefix)
			return reply{had, more}, err
		})
		return answer.Value, err
	}
	result, err := send(ctx, session.Operation{Op: "force release"})
	if err != nil {
		return 0, err
	}
	if result.more {
		s.continueInBackground(func(ctx context.Context) (more bool, err error) {
			result, err := send(ctx, session.Operation{Op: "force release", RetryRefused: true})
			return result.more, err
		})
	}
	return result.units, nil
}

// continueInBackground goes on in the background if one command did not serve all waiters that it
// could. The answer of the first command stands, whatever becomes of the others. If nothing is
// answered for the time of a heartbeat, waiters serve themselves by their heartbeats.
func (s *Semaphore) continueInBackground(next func(ctx context.Context) (more bool, err error)) {
	s.manager.session.CleanUp(session.InFlight{}, s.settings.Heartbeat, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, settings.DefaultAttemptTimeout)
		defer cancel()
		for {
			more, err := next(ctx)
			if err != nil || !more {
				return err
			}
		}
	})
}

// Queue reads who waits, in order. It skips the first skip waiters, and returns at most show of
// those behind, and the length of the whole queue. If show is 0 or less, it returns no waiters.
// Expired waiters stay in the queue until someone drops them.
//
// Queue costs one round trip for each thousand waiters shown, and changes nothing. Errors are those
// of Inspect.
func (s *Semaphore) Queue(ctx context.Context, skip, show int) (waiters []lock.Waiter, length int, err error) {
	if err := s.check(ctx); err != nil {
		return nil, 0, err
	}
	ctx, cancel := session.WithDefaultTimeout(ctx)
	defer cancel()
	return s.inspector().List(ctx, skip, show)
}

func (s *Semaphore) inspector() waitqueue.Inspector {
	return waitqueue.Inspector{Session: s.manager.session, Name: s.keys.Name, Queue: s.keys.Queue, Alive: s.keys.Alive}
}

// RemoveWaiter removes a waiter from the queue, for operators. acquisition is the one that Queue
// showed. The Acquire of that waiter returns lockerr.ErrRemoved as soon as it finds out. It does
// not queue again by itself, unless it is cut off from Redis for more than an hour and two
// heartbeats.
//
// RemoveWaiter reports whether there was such a waiter. If the waiter has been granted meanwhile,
// it keeps its permit, and the result is false. Waiters behind it that fit now get their units at
// once, fifty of them at most; one more command for each fifty that are left follows in the
// background.
//
// RemoveWaiter costs one round trip for each thousand waiters before it, and one more, or two if it
// removes the waiter.
func (s *Semaphore) RemoveWaiter(ctx context.Context, acquisition string) (removed bool, err error) {
	if err := s.check(ctx); err != nil {
		return false, err
	}
	ctx, cancel := session.WithDefaultTimeout(ctx)
	defer cancel()
	removed, err = s.inspector().Remove(ctx, acquisition)
	if removed {
		s.serveQueue(ctx)
	}
	return removed, err
}

// serveQueue gives free units to the first waiters, after an operator removed a waiter that may
// have kept those behind it waiting. It sends the command with which a permit is released, for an
// acquisition that does not exist. If that fails, the next heartbeat of a waiter does the same.
func (s *Semaphore) serveQueue(ctx context.Context) {
	ss := s.manager.session
	nobody := lua.Waiter{Acquisition: ss.NewAcquisitionID(), Units: 1}
	send := func(ctx context.Context, call session.Operation) (more bool, err error) {
		answer, err := runOperation(ctx, s, call, func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.ReleasePermitsReply, error) {
			return lua.ReleasePermits(ctx, rdb, lua.ReleasePermitsParams{
				Keys: s.scriptKeys(), Waiter: nobody, Retention: ss.FenceRetention, ClientChannels: key.ClientPrefix,
			})
		})
		return answer.Value.More, err
	}
	more, err := send(ctx, session.Operation{Op: opRemove})
	if err == nil && more {
		s.continueInBackground(func(ctx context.Context) (more bool, err error) {
			return send(ctx, session.Operation{Op: opRemove, RetryRefused: true})
		})
	}
}

const opRemove = "remove a waiter"

// runOperation sends a command that belongs to no wait.
func runOperation[T any](ctx context.Context, s *Semaphore, call session.Operation, send func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (T, error)) (session.Answer[T], error) {
	if err := s.check(ctx); err != nil {
		return session.Answer[T]{}, err
	}
	ctx, cancel := session.OperatorContext(ctx)
	defer cancel()
	call.Name, call.Primitive, call.AttemptTimeout, call.StopOnClose = s.keys.Name, event.Semaphore, settings.DefaultAttemptTimeout, true
	return session.Do(ctx, s.manager.session, call, send)
}
