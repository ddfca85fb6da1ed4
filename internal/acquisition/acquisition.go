package acquisition

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/watchdog"
)

// ErrEnded says that an acquisition had been released before the operation
// began: a would-be re-entry is a fresh lock then.
var ErrEnded = errors.New("acquisition has been released")

// ErrGone is what a Keeper answers when the server says that the lock is not
// this acquisition's.
var ErrGone = errors.New("not this acquisition's")

// Keeper is the primitive behind an acquisition: it knows the scripts. Its
// methods are called one at a time for one acquisition.
type Keeper interface {
	// Reenter asks Redis for one hold more, and extends the lease; one of 0 is left
	// as it is. ErrGone if the lock is not ours; else when the command was sent, and
	// what its other attempts may still do.
	Reenter(ctx context.Context, a *Acquisition, holds int, lease time.Duration) (Counted, error)
	// SetHolds tells Redis the number of holds, above zero. ErrGone if the lock
	// is not ours.
	SetHolds(ctx context.Context, a *Acquisition, holds int) (Counted, error)
	// Leave gives the lock back. ErrGone if it was not ours.
	Leave(ctx context.Context, a *Acquisition) error
	// Lost is called once when a live acquisition was lost; its owner may still
	// come and ask.
	Lost(a *Acquisition)
	// Ended is called once, when no hold is left to ask about, or when the
	// release failed. No mutex is held around either call.
	Ended(a *Acquisition)
}

// Counted is a command that told Redis a number of holds.
type Counted struct {
	Sent   time.Time
	Strays session.Strays // attempts that went unanswered, and may set the number yet
}

// Grant is a fresh grant as a primitive got it.
type Grant struct {
	Name     string
	Release  string // what giving it back is called in errors: "unlock"
	Key      string // what the watchdog renews
	Slot     int
	ID       string
	Fence    int64
	Sent     time.Time      // before the command that was granted
	Strays   session.Strays // of its commands, which may be granted yet
	Owner    *owner.Owner
	Permit   bool // Owner is that of the locks around it, and owns no permit
	Settings *settings.Lock
}

type state int8

const (
	live state = iota
	leaving
	released
	lost
)

// Acquisition is one fresh grant. Its methods may be called concurrently.
type Acquisition struct {
	Grant

	session *session.Session
	keeper  Keeper
	lease   *watchdog.Lease
	turn    chan struct{} // capacity 1: one command at a time

	mu      sync.Mutex
	state   state
	holds   int     // the number meant
	open    []*Hold // not released, oldest first
	lostErr *lockerr.LostError
	watched []chan struct{}         // Lost of holds whose handles became garbage
	ended   bool                    // the keeper was told
	retried bool                    // a release failed, and is tried again: it may have been done by now
	stop    context.CancelCauseFunc // ends the command under way; nil where the loss does not
}

// Begin starts to keep a fresh grant alive and returns its first hold.
func Begin(s *session.Session, k Keeper, g Grant, site Site) *Hold {
	a := &Acquisition{
		Grant: g, session: s, keeper: k,
		turn: make(chan struct{}, 1),
	}
	h := a.newHold(site)
	a.holds = 1
	st := g.Settings
	a.lease = s.Watchdog.Watch(watchdog.Spec{
		Key: g.Key, ID: g.ID, Group: g.Slot,
		Lease: st.Lease, Margin: st.Margin(), Every: st.Every, Renew: st.Renew, MaxHold: st.MaxHold,
		Sent:  g.Sent,
		Ended: func(r watchdog.Reason) { a.expire(a.reason(r)) },
	})
	return h
}

// reason puts the watchdog's finding into words.
func (a *Acquisition) reason(r watchdog.Reason) string {
	switch {
	case r == watchdog.GoneOnServer:
		return goneReason
	case r == watchdog.MaxHoldReached:
		return "its maximum hold time is over"
	case !a.Settings.Renew:
		return "its lease is over, and was not to be renewed"
	}
	return "its lease could not be confirmed in time"
}

const goneReason = "redis has it no more: it expired, was removed or was taken over"

// Reenter adds a hold. It asks Redis, which also proves that the lock is still
// ours. ErrEnded if the acquisition was released meanwhile; a *LostError if it
// was lost.
func (a *Acquisition) Reenter(ctx context.Context, site Site) (*Hold, error) {
	if err := a.takeTurn(ctx, "lock"); err != nil {
		return nil, err
	}
	defer a.giveTurn()
	if err := a.usable(); err != nil {
		return nil, err
	}
	n := a.count() + 1
	lease := a.leaseToAsk()
	asking, cancel := a.untilLost(ctx)
	defer cancel()
	answer, err := a.keeper.Reenter(asking, a, n, lease)
	if errors.Is(err, ErrGone) {
		return nil, a.lose()
	}
	a.mendNumber(answer.Strays, err)
	if err != nil {
		return nil, a.lostOr(err)
	}
	if lease == a.Settings.Lease {
		a.lease.Confirm(answer.Sent, lease)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.usableLocked(); err != nil {
		return nil, err // lost, or closed, while Redis was asked
	}
	h := a.newHold(site)
	a.holds = len(a.open) // n, unless holds were dropped, which do not count
	if a.Settings.Renew {
		a.lease.Resume() // all may have been dropped
	}
	return h, nil
}

// leaseToAsk is the lease that a re-entry extends to, or 0 where the hold is not to
// be extended any more. Re-entering must not be a way around the maximum hold time.
func (a *Acquisition) leaseToAsk() time.Duration {
	st := a.Settings
	if !st.Renew || st.MaxHold > 0 && time.Since(a.Sent) >= st.MaxHold {
		return 0
	}
	return st.Lease
}

// mendNumber tells Redis the right number after a command that failed, or one of
// whose attempts may set another number yet: at once, and again when none can any
// more. Nothing rests on the number; it is what operators see.
func (a *Acquisition) mendNumber(strays session.Strays, err error) {
	if err == nil && !strays.Any() {
		return
	}
	a.session.GiveBack(strays, a.Settings.Lease, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, a.Settings.CallLimit())
		defer cancel()
		if err := a.takeTurn(ctx, a.Release); err != nil {
			return err
		}
		defer a.giveTurn()
		ctx, cancel = a.untilLost(ctx)
		defer cancel()
		if a.usable() != nil {
			return nil // and no number any more
		}
		_, err := a.keeper.SetHolds(ctx, a, a.count())
		if errors.Is(err, ErrGone) || a.usable() != nil {
			return nil // the next command, or renewal, tells the holders
		}
		return err
	})
}

// untilLost returns a context for a command that says nothing to anybody once the lock
// is lost: it ends then, and whoever waits for the turn is told of the loss.
func (a *Acquisition) untilLost(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancelCause(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop = stop
	if a.state == lost {
		stop(a.lostErr)
	}
	return ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.stop = nil
		stop(nil)
	}
}

// lostOr is the loss of the lock, or else err. A refusal says more: it tells what to do.
func (a *Acquisition) lostOr(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == lost && !errors.Is(err, lockerr.ErrRefused) {
		return a.lostErr
	}
	return err
}

// takeTurn waits for the acquisition's turn to send a command: numbers of holds
// must not overtake each other.
func (a *Acquisition) takeTurn(ctx context.Context, op string) error {
	select {
	case a.turn <- struct{}{}:
		return nil
	default:
	}
	var closing <-chan struct{}
	if op == "lock" { // what gives back goes on
		closing = a.session.Closing()
	}
	select {
	case a.turn <- struct{}{}:
		return nil
	case <-closing:
		return &lockerr.OpError{Kind: lockerr.ErrClosed, Op: op, Name: a.Name}
	case <-ctx.Done():
		kind := lockerr.ErrIndeterminate // the release is tried on
		if op == "lock" {
			kind = lockerr.ErrUnavailable // nothing was sent, nor will be
		}
		return &lockerr.OpError{Kind: kind, Op: op, Name: a.Name, Err: session.Cause(ctx)}
	}
}

func (a *Acquisition) giveTurn() { <-a.turn }

func (a *Acquisition) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.holds
}

func (a *Acquisition) usable() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.usableLocked()
}

func (a *Acquisition) usableLocked() error {
	switch a.state {
	case live:
		return nil
	case lost:
		return a.lostErr
	default:
		return ErrEnded
	}
}

// expire is the watchdog's word that the lease has ended. An unlock that is
// under way finds out by itself, and decides.
func (a *Acquisition) expire(reason string) {
	a.mu.Lock()
	if a.state != live {
		a.mu.Unlock()
		return
	}
	a.setLost(reason)
	a.mu.Unlock()
	a.keeper.Lost(a)
	a.endIfDone() // every hold may have been dropped before: nobody will come and ask
}

// lose is the server's word, to a command of ours, that the lock is not this
// acquisition's. It returns the error to give to holders.
func (a *Acquisition) lose() error {
	a.mu.Lock()
	if a.state == released {
		a.mu.Unlock()
		return ErrEnded
	}
	fresh := a.state != lost
	if fresh {
		a.setLost(goneReason)
		a.lease.Disprove()
	}
	err := a.lostErr
	a.mu.Unlock()
	if fresh {
		a.keeper.Lost(a)
		a.endIfDone()
	}
	return err
}

// setLost tells all holds, with a.mu held.
func (a *Acquisition) setLost(reason string) {
	a.state = lost
	a.lostErr = &lockerr.LostError{
		Name: a.Name, Acquisition: a.ID, Reason: reason, Lease: a.Settings.Lease, Age: time.Since(a.Sent),
	}
	a.tell(a.lostErr)
	if a.stop != nil {
		a.stop(a.lostErr)
	}
}

// tell ends all holds without their asking, with a.mu held.
func (a *Acquisition) tell(cause error) {
	for _, h := range a.open {
		h.end(cause)
		if !h.told && h.lost != nil {
			close(h.lost)
		}
		h.told = true
	}
	for _, lost := range a.watched {
		close(lost)
	}
	a.watched = nil
}

// endIfDone tells the keeper, once, when no hold is open any more.
func (a *Acquisition) endIfDone() {
	a.mu.Lock()
	done := len(a.open) == 0 && a.state != live && a.state != leaving
	a.mu.Unlock()
	if done {
		a.end()
	}
}

func (a *Acquisition) end() {
	a.mu.Lock()
	first := !a.ended
	a.ended = true
	a.mu.Unlock()
	if first {
		a.keeper.Ended(a)
	}
}

// IsLive reports whether the acquisition has the lock as far as is known: it was not
// lost, and no release of it has begun.
func (a *Acquisition) IsLive() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == live
}

// Site returns where the oldest hold that is still open was acquired.
func (a *Acquisition) Site() Site {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.open) == 0 {
		return Site{}
	}
	return a.open[0].site
}

// TrustedUntil is when trust in the lease ends unless it is renewed.
func (a *Acquisition) TrustedUntil() time.Time { return a.lease.TrustedUntil() }
