package fair

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// want is one wish for a lock, of a Lock or TryLock.
type want struct {
	*mutex.Want

	family *Family
	keys   key.Fair
	ticket int64 // 0 until it has one
	again  bool  // it lost its place, and queues with the ticket
	place  lua.Place
	now    lua.Time // when the place was last heard of
}

func (w *want) fairKeys() lua.FairKeys {
	return lua.FairKeys{Lock: w.keys.Lock, Fence: w.keys.Fence, Queue: w.keys.Queue, Alive: w.keys.Alive}
}

func (w *want) waiter(id string) lua.Waiter {
	return lua.Waiter{Acquisition: id, Units: 1, Heartbeat: w.Settings.Heartbeat, About: w.Session.About}
}

// join asks Redis for the lock or a place in the queue, under an id.
func (w *want) join(ctx context.Context, id string, try bool) (session.Answer[lua.JoinReply], error) {
	s := w.Session
	return session.Do(ctx, s, w.Call("lock", false),
		func(ctx context.Context, voidAfter lua.Time) (lua.JoinReply, error) {
			r, err := lua.Join(ctx, s.Redis, lua.JoinParams{
				Keys: w.fairKeys(), Waiter: w.waiter(id), Lease: w.Settings.Lease, Ticket: w.ticket, Try: try,
				VoidAfter: voidAfter, KeepFence: s.KeepFence, Clients: key.ClientPrefix,
			})
			if err == nil {
				err = s.Heard(r.Status, r.Now)
			}
			return r, err
		})
}

func (w *want) beat(id string) lua.Beat {
	return lua.Beat{Keys: w.fairKeys(), Waiter: w.waiter(id), Lease: w.Settings.Lease}
}

// ask beats once for one waiter, until that is answered.
func (w *want) ask(ctx context.Context, id string) (session.Answer[lua.BeatReply], error) {
	return session.Do(ctx, w.Session, w.Call("lock", false),
		func(ctx context.Context, _ lua.Time) (lua.BeatReply, error) {
			replies, err := w.family.beats(ctx, []lua.Beat{w.beat(id)})
			if err != nil {
				return lua.BeatReply{}, err
			}
			return replies[0], nil
		})
}

// leave gives up what an id has: the lock, which goes to the next, or the place in
// the queue. It is sent again while dead waiters are being dropped, and also when
// Redis refuses it, for a permission may come back before the lease ends.
func (w *want) leave(ctx context.Context, id string) (session.Answer[lua.LeaveReply], error) {
	s := w.Session
	for first := lua.Status(0); ; {
		answer, err := session.Do(ctx, s, w.Call("unlock", true),
			func(ctx context.Context, _ lua.Time) (lua.LeaveReply, error) {
				return lua.Leave(ctx, s.Redis, lua.LeaveParams{
					Keys: w.fairKeys(), Waiter: w.waiter(id), Channel: w.keys.Channel,
					KeepFence: s.KeepFence, Clients: key.ClientPrefix, Cluster: s.Cluster,
				})
			})
		if first != 0 {
			answer.Value.Status = first
		}
		if err != nil || !answer.Value.More {
			return answer, err
		}
		first = answer.Value.Status
	}
}

// giveBack leaves in the background what may have been, or may yet be, granted or
// queued under an id.
func (w *want) giveBack(id string, strays session.Strays, freed func()) {
	w.GiveBack(strays, func(ctx context.Context) (lua.Status, error) {
		answer, err := w.leave(ctx, id)
		return answer.Value.Status, err
	}, freed)
}

// begin makes a hold of a grant, and the acquisition it begins.
func (w *want) begin(id string, g queue.Grant, strays session.Strays) *acquisition.Hold {
	k := &keeper{want: w, Counting: mutex.Counting{Want: w.Want}}
	h := w.Begin(k, id, g.Fence, g.Sent, g.First, strays)
	w.Record.Granted(h.A)
	return h
}

// try asks Redis once for the lock.
func (w *want) try(ctx context.Context) (*acquisition.Hold, error) {
	id := w.NewID()
	answer, err := w.join(ctx, id, true)
	r := answer.Value
	switch {
	case err != nil:
	case r.Status == lua.Granted && !w.Late(answer.Sent):
		return w.begin(id, queue.Grant{Fence: r.Fence, Sent: answer.Sent}, answer.Strays), nil
	default:
		w.heard(r.Place, r.Now)
		refused := w.refusal()
		err = &refused
	}
	if answer.Strays.Any() || r.Status == lua.Granted {
		w.giveBack(id, answer.Strays, nil)
	}
	return nil, err
}

// contend joins the queue, and waits in it until the lock comes or ctx ends.
func (w *want) contend(ctx context.Context) (*acquisition.Hold, error) {
	for {
		h, err := w.contendOnce(ctx)
		if !errors.Is(err, queue.ErrGone) {
			return h, err
		}
		// The server lost its data, or took this waiter for dead. Its id may have
		// been granted and have ended: it is never used again. The ticket is.
		w.again = true
	}
}

func (w *want) contendOnce(ctx context.Context) (h *acquisition.Hold, err error) {
	id := w.NewID()
	q := w.family.desk.Enter(queue.Spec[lua.Beat]{
		Acquisition: id, Key: w.keys.Lock, Slot: w.Slot(), Heartbeat: w.Settings.Heartbeat, Beat: w.beat(id),
	})
	defer q.Leave()
	var strays session.Strays
	for {
		answer, err := w.join(ctx, id, false)
		strays = strays.And(answer.Strays)
		r := answer.Value
		switch {
		case err != nil:
			if strays.Any() {
				w.giveBack(id, strays, nil)
			}
			return nil, w.explained(ctx, err)
		case r.Status == lua.Granted && !w.Late(answer.Sent):
			return w.begin(id, queue.Grant{Fence: r.Fence, Sent: answer.Sent}, strays), nil
		case r.Status == lua.Granted:
			continue // asked for again, which extends it
		}
		w.ticket = r.Ticket
		w.heard(r.Place, r.Now)
		granted := false
		defer func() {
			if !granted { // given up, or the user's notice panics
				w.giveBack(id, strays, nil)
			}
		}()
		g, err := w.wait(ctx, q, id, answer)
		if err != nil {
			return nil, err
		}
		granted = true
		return w.begin(id, g, strays), nil
	}
}

// wait waits in the queue. Its errors are for users, but for ErrGone and
// ErrOwnChain.
func (w *want) wait(ctx context.Context, q *queue.Waiter[lua.Beat], id string, joined session.Answer[lua.JoinReply]) (queue.Grant, error) {
	suspect := w.Suspect()
	defer suspect.Stop()
	own, stop := w.Record.Watch(w.Owner)
	defer stop()
	if w.Record.HeldBy(w.Owner) != nil {
		return queue.Grant{}, mutex.ErrOwnChain
	}
	suspect.Begin()
	g, err := q.Wait(ctx, joined.Sent, joined.Value.Place, queue.Wait{
		Ask:       func(ctx context.Context) (session.Answer[lua.BeatReply], error) { return w.ask(ctx, id) },
		Confirm:   !w.Settings.Renew || w.Settings.MaxHold > 0,
		Late:      w.Late,
		Place:     w.tell,
		Interrupt: own, Suspect: suspect.C, Check: suspect.Check,
	})
	switch {
	case err == nil:
		return g, nil
	case errors.Is(err, queue.ErrInterrupted):
		return g, mutex.ErrOwnChain
	case errors.Is(err, queue.ErrGone):
		return g, err
	case errors.Is(err, queue.ErrRemoved):
		return g, w.removed()
	}
	return g, w.explained(ctx, err)
}

// heard notes where this one stands.
func (w *want) heard(p lua.Place, now lua.Time) { w.place, w.now = p, now }

// tell tells the user where this one stands.
func (w *want) tell(p lua.Place) {
	w.heard(p, w.Session.Now())
	if notice := w.Settings.Notice; notice != nil {
		r := w.refusal()
		notice(settings.Waiting{
			Name: r.Name, Position: r.Position, Length: r.Length, Holder: r.Holder, Description: r.Description,
			Since: r.Since, Remaining: r.Remaining, Again: w.again,
		})
	}
	w.again = false
}

// refusal says who has the lock, and where in the queue this one stands.
func (w *want) refusal() lockerr.NotAcquiredError {
	return lockerr.NotAcquiredError{
		Name: w.keys.Lock, Holder: w.place.Holder, Description: w.place.About, Remaining: w.place.Remaining,
		Since: mutex.Since(w.place.Fence, w.now.Add(time.Second)), Position: w.place.Position, Length: w.place.Length,
	}
}

// removed is the error of a waiter that an operator took out of the queue.
func (w *want) removed() error {
	r := w.refusal()
	r.Err = lockerr.ErrRemoved
	return &r
}

// explained is the error of a wait that ended.
func (w *want) explained(ctx context.Context, err error) error {
	return w.GaveUp(ctx, err, w.refusal())
}
