package acquisition

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/watchdog"
)

// IsAcknowledged reports whether users may know the acquisition. If replicas must acknowledge the
// grant, that is so when Acknowledge has returned nil.
func (a *Acquisition) IsAcknowledged() bool { return !a.unacknowledged }

// Acknowledge has replicas acknowledge the grant of a hold that no user has seen. It blocks until
// enough of them have done so, or gives up as session.Acknowledge does. On failure, it releases the
// grant. If Redis does not answer, or ctx has ended, the background does.
//
// The error is a *lockerr.NotReplicatedError if too few replicas acknowledged the grant, a
// *lockerr.LostError if the grant was lost meanwhile, and otherwise that of session.Acknowledge.
func (h *Hold) Acknowledge(ctx context.Context) error {
	a := h.A
	returned := false
	defer func() {
		if !returned { // a context of the user panicked
			h.giveUpInBackground()
		}
	}()
	answer, err := a.acknowledge(ctx)
	returned = true
	switch {
	case err == nil:
		a.unacknowledged = false
	case answer.Value == watchdog.Unknown || ctx.Err() != nil:
		h.giveUpInBackground()
	default:
		bounded, cancel := session.WithDeadlineReason(ctx, time.Now().Add(a.attemptTime()), "the background goes on")
		defer cancel()
		_ = h.Unlock(bounded)
	}
	return err
}

func (a *Acquisition) acknowledge(ctx context.Context) (session.Answer[watchdog.Result], error) {
	st := a.Settings
	op := "lock"
	if a.IsPermit() {
		op = "acquire"
	}
	answer, err := a.session.Acknowledge(ctx, session.Acknowledgement{
		Op: op, Primitive: a.Primitive, Kind: a.leaseKind(), Grant: watchdog.Renewal{Key: a.Name, ID: a.ID, Lease: st.Lease},
		Replicas: st.Replicas, Timeout: st.ReplicaTimeout, AttemptTimeout: st.AttemptTimeout(),
	})
	switch {
	case err != nil:
	case answer.Value == watchdog.Gone:
		if err = a.markGone(); errors.Is(err, ErrAlreadyReleased) { // by Close
			err = &lockerr.OpError{Kind: lockerr.ErrClosed, Op: op, Name: a.Name}
		}
	case answer.Acknowledged < st.Replicas:
		err = &lockerr.NotReplicatedError{Name: a.Name, IsPermit: a.IsPermit(), Needed: st.Replicas, Acknowledged: answer.Acknowledged}
	default:
		a.lease.MarkRenewed(answer.Sent, st.Lease)
	}
	return answer, a.lossOr(err)
}

// giveUpInBackground releases the grant of a hold that no user will see.
func (h *Hold) giveUpInBackground() {
	h.A.session.Background(func(ctx context.Context) { _ = h.Unlock(ctx) })
}
