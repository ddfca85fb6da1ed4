package session

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// Acknowledgement says what replicas are to acknowledge.
type Acknowledgement struct {
	Op             string // for errors
	Primitive      event.Primitive
	Kind           LeaseKind
	Grant          watchdog.Renewal
	Replicas       int           // how many of them, at least 1
	Timeout        time.Duration // how long the server waits for them
	AttemptTimeout time.Duration // how long an answer usually takes without that
}

// Acknowledge renews a grant, and has the server wait until replicas have the renewal. They then
// have the grant too, because they get writes in order. The answer of the renewal proves that the
// server that waited has the grant: after a failover, another one may lack it. Acknowledge blocks
// until the server answers, ctx ends, the client begins to close, or the time is over. It repeats
// attempts that fail meanwhile.
//
// The text of the script goes with the command, because a WAIT behind a script that the server
// lacks would say nothing. The error is a *lockerr.OpError, of the kind ErrRefused, ErrClosed or
// ErrIndeterminate.
func (s *Session) Acknowledge(ctx context.Context, k Acknowledgement) (Answer[watchdog.Result], error) {
	call := Operation{
		Op: k.Op, Primitive: k.Primitive, Name: k.Grant.Key, AttemptTimeout: k.Timeout + k.AttemptTimeout, StopOnClose: true,
		Wait: &sender.Wait{Key: k.Grant.Key, Replicas: k.Replicas, Timeout: k.Timeout},
	}
	within := s.AttemptTime(call.Name, call.AttemptTimeout)
	ctx, cancel := WithDeadlineReason(ByWorker(ctx), time.Now().Add(within), "gave up after "+within.String())
	defer cancel()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.closing, stop)()
	grant := k.Grant
	answer, err := Do(ctx, s, call, func(ctx context.Context, rdb lua.Redis, _ lua.Time) (watchdog.Result, error) {
		// WAIT waits for the last write of its connection. A renewal to the lease of the grant, in
		// the same millisecond, might write nothing.
		grant.Lease += time.Millisecond
		results, err := s.renewers[k.Kind](ctx, lua.WithEval(rdb), []watchdog.Renewal{grant})
		if err != nil {
			return watchdog.Unknown, err
		}
		return results[0], nil
	})
	var failed *lockerr.OpError
	if errors.As(err, &failed) && failed.Kind != lockerr.ErrRefused && failed.Kind != lockerr.ErrClosed {
		failed.Kind = lockerr.ErrIndeterminate // the grant is in Redis, whatever became of this command
	}
	return answer, err
}
