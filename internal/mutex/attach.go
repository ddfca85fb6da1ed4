package mutex

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// errAttachedLate says why an attach that Redis has done failed.
var errAttachedLate = errors.New("the answer came when the lease may have ended")

// Attach turns an exported acquisition into a fresh grant, with the command of a local handoff. It
// tries for a few seconds at most. If nobody knows whether it succeeded, cleanUp frees the lock.
func (r *Request) Attach(ctx context.Context, text string, cleanUp func(id string, inFlight session.InFlight)) (acquisition.Grant, error) {
	r.Source = event.Attached
	exported, err := key.ParseExported(text)
	switch {
	case err != nil:
		return acquisition.Grant{}, err
	case exported.Name != r.Name:
		// Not the text: whoever reads it in a log could take the lock.
		return acquisition.Grant{}, &lockerr.ConfigError{Setting: "lock of the exported hold", Value: exported.Name, Reason: fmt.Sprintf("must be %q, the lock that is to be attached", r.Name)}
	}
	if a := r.State.HeldBy(r.Owner); a != nil {
		if err := a.Loss(); err != nil {
			return acquisition.Grant{}, err // as for a re-entry: the work around this call must learn of the loss first
		}
	}
	ctx, cancel := session.WithDefaultTimeout(ctx)
	defer cancel()
	id, returned := r.NewAcquisitionID(), false
	defer func() {
		if !returned { // a hook has ended the goroutine
			cleanUp(id, session.InFlight{})
		}
	}()
	answer, err := r.transfer(ctx, exported.ID, id)
	returned = true
	granted := err == nil && answer.Value.Status == lua.Granted
	if granted && !r.TrustExpired(answer.Sent) {
		return acquisition.Grant{ID: id, Fence: answer.Value.Fence, Sent: answer.Sent, InFlight: answer.InFlight}, nil
	}
	if granted || answer.InFlight.Any() {
		cleanUp(id, answer.InFlight)
	}
	switch {
	case err != nil:
		return acquisition.Grant{}, err
	case granted:
		return acquisition.Grant{}, &lockerr.OpError{Kind: lockerr.ErrIndeterminate, Op: "attach", Name: r.Name, Err: errAttachedLate}
	}
	return acquisition.Grant{}, &lockerr.LostError{Name: r.Name, ID: exported.ID, Reason: lockerr.LossExported}
}

func (r *Request) transfer(ctx context.Context, from, to string) (session.Answer[lua.TransferReply], error) {
	call := r.NewOperation("attach")
	call.StopOnClose, call.Window = true, r.Settings.Window()
	keys := r.Keys().Args
	return session.Do(ctx, r.Session(), call,
		func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (lua.TransferReply, error) {
			return lua.Transfer(ctx, rdb, lua.TransferParams{
				LockKey: keys.Lock, FenceKey: keys.Fence, From: from, To: to,
				Lease: r.Settings.Lease, VoidAfter: voidAfter, FenceRetention: r.Session().FenceLife(r.Settings.Lease),
				Exported: true, Description: r.Session().Description,
			})
		})
}
