package acquisition

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/watchdog"
)

// ErrAlreadyReleased says that an acquisition had been released before the operation began. A
// re-entry must then acquire the lock afresh.
var ErrAlreadyReleased = errors.New("acquisition has been released")

// ErrGone is the answer of a Backend if the server says that the lock is not this acquisition's.
var ErrGone = errors.New("not this acquisition's")

// Backend releases an acquisition. A primitive implements it, with its own scripts. For one
// acquisition, the methods that send commands are called one at a time.
type Backend interface {
	// Release releases the lock, which Redis has under a.StoredID. The error is ErrGone if it was
	// not ours.
	Release(ctx context.Context, a *Acquisition) error
	// Keep has Redis keep the lock under another id. sent is before the first attempt was sent that
	// may have done it. Attempts in flight may have kept the lock, whatever the error. The error is
	// ErrGone if the lock was not ours.
	Keep(ctx context.Context, a *Acquisition, k Keep) (sent time.Time, inFlight session.InFlight, err error)
	// OnLost is called once when a live acquisition was lost. Its owner may still re-enter or
	// unlock, and then gets the loss.
	OnLost(a *Acquisition)
	// OnEnded is called once, when no open hold is left, or when the release failed. No mutex is
	// held during a call of OnLost or OnEnded.
	OnEnded(a *Acquisition)
	// CleanUp releases, in the background, what the attempts in flight may yet get for an
	// acquisition that is over. It is called once if there are any.
	CleanUp(id string, inFlight session.InFlight)
}

// MutexBackend also counts the holds of an acquisition. A permit has one hold, so a semaphore has
// none.
type MutexBackend interface {
	Backend
	// Reenter asks Redis for another hold, and extends the lease. It calls lease before each
	// attempt. A lease of 0 leaves the lease as it is. The result says when the command was sent,
	// and which attempts are in flight. The error is ErrGone if the lock is not ours.
	Reenter(ctx context.Context, a *Acquisition, holds int, lease func() time.Duration) (HoldsUpdate, error)
	// SetHolds sends Redis the number of holds, which is above zero. The error is ErrGone if the
	// lock is not ours.
	SetHolds(ctx context.Context, a *Acquisition, holds int) (HoldsUpdate, error)
}

// HoldsUpdate describes a command that sent Redis a number of holds.
type HoldsUpdate struct {
	Sent     time.Time
	InFlight session.InFlight // attempts in flight, which may still set the number
}

// Grant is a fresh grant.
type Grant struct {
	// What Redis granted.
	ID       string
	Fence    int64
	Sent     time.Time        // the instant before the granted command was sent
	InFlight session.InFlight // its attempts in flight, which may still be granted

	// The primitive sets these before Start, from the request.
	Name      string       // under which the watchdog renews it
	Owner     *owner.Owner // of a permit, which has no owner: that of the locks around it
	Settings  *settings.Lock
	Primitive event.Primitive
	Units     int32
}

// IsPermit reports whether it is the grant of a permit.
func (g *Grant) IsPermit() bool { return g.Primitive == event.Semaphore }

// leaseKind says how the lease is renewed.
func (g *Grant) leaseKind() session.LeaseKind {
	if g.IsPermit() {
		return session.Permits
	}
	return session.Holds
}

// releaseOp is how errors call the release.
func (g *Grant) releaseOp() string {
	if g.IsPermit() {
		return "release"
	}
	return "unlock"
}

type state int8

const (
	live state = iota
	releasing
	released
	lost
)

// Acquisition is one fresh grant. Its methods may be called concurrently.
type Acquisition struct {
	Grant

	session *session.Session
	backend Backend
	lease   *watchdog.Lease

	unacknowledged bool // replicas have to acknowledge it, before anybody may know it

	mu              sync.Mutex
	state           state
	inCommand       bool // a command is in flight; used until somebody first has to wait for one
	backendNotified bool // Backend.OnEnded was called
	isCleanedUp     bool // Backend.CleanUp was called, if there was anything to clean up
	releaseRetried  bool // a release failed and is retried; it may have taken effect
	mayBeFreed      bool // a command that frees the lock has taken effect, or may have
	isGone          bool // Redis has answered that the lock is free or lost; no later call can keep it
	isClosing       bool // CloseAll releases the lock, and calls notifyBackend after that
	isObserved      bool // the observers know of the grant
	endObserved     bool // the observers know of its end
	countIsSent     bool // the background sends the number of holds until Redis has it
	lossResult      event.Result
	keeping         *keeping // the lock is kept after the last hold; nil: it is freed
	holds           int      // the count that decides; the number in Redis may be old
	open            []*Hold  // not released, oldest first
	firstOpen       [1]*Hold // the memory of open, until there are more
	first           Hold     // the memory of the first hold
	lostErr         *lockerr.LostError
	commandLock     chan struct{}           // capacity 1: one command at a time; nil until somebody waits
	orphaned        *orphan                 // the Lost channels of holds whose handles became garbage
	cancelCommand   context.CancelCauseFunc // ends the command in flight; nil if a loss must not end it
}

// orphan is a list of channels. It is not a slice, because each lock that is held pays for the
// field.
type orphan struct {
	lost chan struct{}
	next *orphan
}

// Start starts to keep a fresh grant alive and returns its first hold. Renewals of one group may
// share a call. The acquisition keeps site.
func Start(s *session.Session, k Backend, g Grant, site *CallSite) *Hold {
	a := &Acquisition{Grant: g, session: s, backend: k, unacknowledged: g.Settings.Replicas > 0}
	h := a.newHold(site)
	a.holds = 1
	st := g.Settings
	a.lease = s.Watchdog.Watch(watchdog.Spec{
		Key: g.Name, ID: g.ID, Group: s.Group(g.leaseKind(), g.Name),
		Lease: st.Lease, Margin: st.Margin(), Interval: st.RenewInterval, Renew: st.Renew, MaxHold: st.MaxExtension(),
		Sent:   g.Sent,
		OnLost: a,
	})
	return h
}

// lossOf returns why the watchdog ended the lease. The caller holds a.mu.
func (a *Acquisition) lossOf(r watchdog.Reason) event.Result {
	switch {
	case r == watchdog.GoneOnServer:
		return event.Gone
	case r == watchdog.MaxHoldReached && a.Settings.MaxHold > 0 && time.Since(a.Sent) >= a.Settings.MaxHold:
		return event.MaxHold
	case r == watchdog.MaxHoldReached:
		return event.NoProgress
	case !a.Settings.Renew, len(a.open) == 0: // every handle became garbage
		return event.NotRenewed
	}
	return event.Unconfirmed
}

// lossReasons say, for users, why a hold was lost.
var lossReasons = map[event.Result]lockerr.LossReason{
	event.Gone:        lockerr.LossGone,
	event.MaxHold:     lockerr.LossMaxHold,
	event.NoProgress:  lockerr.LossNoProgress,
	event.NotRenewed:  lockerr.LossNotRenewed,
	event.Unconfirmed: lockerr.LossUnconfirmed,
}

// Reenter adds a hold. It asks Redis, which also proves that the lock is still ours. The error is
// ErrAlreadyReleased if the acquisition was released meanwhile, and a *LostError if it was lost.
func (a *Acquisition) Reenter(ctx context.Context, site CallSite) (*Hold, error) {
	defer a.observeEnd(ctx, nil)
	if err := a.lockForReentry(ctx); err != nil {
		return nil, err
	}
	defer a.unlockCommands()
	if err := a.usable(); err != nil {
		return nil, err
	}
	n := a.holdCount() + 1
	var lease time.Duration // of the last attempt, which is the answered one
	answer, err := a.changeHolds(ctx, func(ctx context.Context) (HoldsUpdate, error) {
		return a.mutexBackend().Reenter(ctx, a, n, func() time.Duration {
			lease = a.reentryLease()
			return lease
		})
	})
	if err != nil {
		return nil, err
	}
	if lease == a.Settings.Lease {
		a.lease.MarkRenewed(answer.Sent, lease)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.usableLocked(); err != nil {
		return nil, err // lost or closed while the command was in flight
	}
	h := a.newHold(&site)
	a.holds = len(a.open) // n, unless holds were dropped, which do not count
	if a.Settings.Renew {
		a.lease.ResumeRenewing() // if all holds had been dropped, renewal had stopped
	}
	return h, nil
}

// mutexBackend is called if the acquisition has several holds, or is about to get one more: it is
// one of a mutex.
func (a *Acquisition) mutexBackend() MutexBackend { return a.backend.(MutexBackend) }

// reentryLease returns the lease that a re-entry extends to. It is 0 if the lease must not be
// extended any more: a re-entry must not be a way around the maximum hold time, and is no progress.
func (a *Acquisition) reentryLease() time.Duration {
	if !a.Settings.Renew || a.lease.MaxHoldOver() {
		return 0
	}
	return a.Settings.Lease
}

// reportProgress lets the watchdog extend the lease for another progress timeout, but not beyond
// the maximum hold time.
func (a *Acquisition) reportProgress() {
	st := a.Settings
	until := time.Now().Add(st.ProgressTimeout)
	if st.MaxHold > 0 {
		if end := a.Sent.Add(st.MaxHold); end.Before(until) {
			until = end
		}
	}
	a.lease.RenewUntil(until)
}

// changeHolds sends a command with a number of holds. The error is that of the loss if the lock was
// lost, and ErrAlreadyReleased if the acquisition was released meanwhile.
//
// The background corrects the number in Redis after a command that failed, or that has attempts in
// flight, which may still set another number. It sends the right number immediately, and again when
// those attempts cannot take effect any more. It also does so if a hook of go-redis has ended the
// goroutine of the command (runtime.Goexit). Nothing depends on the number: only operators see it.
func (a *Acquisition) changeHolds(ctx context.Context, send func(ctx context.Context) (HoldsUpdate, error)) (HoldsUpdate, error) {
	ctx, cancel := a.contextUntilLost(ctx)
	defer cancel()
	returned := false
	defer func() {
		if !returned {
			a.sendHoldCount(session.InFlight{})
		}
	}()
	answer, err := send(ctx)
	returned = true
	if errors.Is(err, ErrGone) {
		return answer, a.markGone()
	}
	if err != nil || answer.InFlight.Any() {
		a.sendHoldCount(answer.InFlight)
	}
	if err != nil {
		err = a.lossOr(err)
	}
	return answer, err
}

// sendHoldCount sends Redis the number of holds, in the background, until Redis has it or the
// acquisition ends. Between two attempts, other commands of the acquisition have their turn.
func (a *Acquisition) sendHoldCount(inFlight session.InFlight) {
	const asLongAsHeld = 100 * 365 * 24 * time.Hour
	a.mu.Lock()
	isUnderway := a.countIsSent && !inFlight.Any()
	a.countIsSent = true
	a.mu.Unlock()
	if isUnderway {
		return // it will send the number of that time
	}
	var own session.InFlight // attempts of the background, which may set an old number later
	a.session.CleanUp(inFlight, asLongAsHeld, func(ctx context.Context) error {
		unanswered, err := a.sendHoldCountOnce(ctx)
		own = own.Merge(unanswered)
		if err == nil && own.Any() {
			a.sendHoldCount(own)
			own = session.InFlight{}
		}
		if err != nil {
			pause := time.NewTimer(a.attemptTime() / 4)
			defer pause.Stop()
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
		}
		return err
	})
}

// sendHoldCountOnce makes one attempt to send Redis the number of holds. It also returns the
// attempt if that is in flight.
func (a *Acquisition) sendHoldCountOnce(ctx context.Context) (session.InFlight, error) {
	ctx, cancel := context.WithTimeout(ctx, a.attemptTime())
	defer cancel()
	if err := a.lockCommands(ctx); err != nil {
		return session.InFlight{}, err
	}
	defer a.unlockCommands()
	ctx, cancel = a.contextUntilLost(ctx)
	defer cancel()
	if a.usable() != nil {
		return session.InFlight{}, nil // the number does not matter any more
	}
	answer, err := a.mutexBackend().SetHolds(session.SingleAttempt(ctx), a, a.holdCount())
	if errors.Is(err, ErrGone) || a.usable() != nil {
		return session.InFlight{}, nil // the next command or renewal notifies the holders
	}
	if err == nil {
		a.mu.Lock()
		a.countIsSent = false
		a.mu.Unlock()
	}
	return answer.InFlight, err
}

// contextUntilLost returns a context that ends when the lock is lost, for a command whose answer
// nobody needs then. The end of the command also frees the turn, so that callers which wait for the
// turn are notified of the loss.
func (a *Acquisition) contextUntilLost(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancelCause(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancelCommand = stop
	if a.state == lost {
		stop(a.lostErr)
	}
	return ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.cancelCommand = nil
		stop(nil)
	}
}

// lossOr returns the error of the loss if the lock was lost, and else err. If err is a refusal,
// lossOr returns err, because a refusal says what to do.
func (a *Acquisition) lossOr(err error) error {
	if loss := a.Loss(); loss != nil && !errors.Is(err, lockerr.ErrRefused) {
		return loss
	}
	return err
}

// lockCommands waits until the acquisition may send a command. Only one command is sent at a time,
// so that numbers of holds do not overtake each other. The command is one of a release, which goes
// on while the client closes.
func (a *Acquisition) lockCommands(ctx context.Context) error {
	if a.takeCommandLock(ctx, nil) {
		return nil
	}
	// The release is retried, so its outcome is open.
	return &lockerr.OpError{Kind: lockerr.ErrIndeterminate, Op: a.releaseOp(), Name: a.Name, Err: session.Cause(ctx)}
}

// lockForReentry is lockCommands for a command that adds a hold. It gives up when the client
// closes.
func (a *Acquisition) lockForReentry(ctx context.Context) error {
	switch {
	case a.takeCommandLock(ctx, a.session.Closing()):
		return nil
	case a.session.IsClosing():
		return &lockerr.OpError{Kind: lockerr.ErrClosed, Op: "lock", Name: a.Name}
	}
	// Nothing was sent, nor will be.
	return &lockerr.OpError{Kind: lockerr.ErrUnavailable, Op: "lock", Name: a.Name, Err: session.Cause(ctx)}
}

// takeCommandLock reports whether it has got the turn before ctx or closing ended.
func (a *Acquisition) takeCommandLock(ctx context.Context, closing <-chan struct{}) bool {
	lock := a.enterCommand()
	if lock == nil {
		return true
	}
	select {
	case lock <- struct{}{}:
		return true
	default:
	}
	select {
	case lock <- struct{}{}:
		return true
	case <-closing:
	case <-ctx.Done():
	}
	return false
}

// enterCommand takes the turn and returns nil if no other caller ever wanted it at the same time.
// Else it returns the lock to take, which has the turn of the command in flight.
func (a *Acquisition) enterCommand() chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.commandLock == nil && !a.inCommand {
		a.inCommand = true
		return nil
	}
	if a.commandLock == nil {
		a.commandLock = make(chan struct{}, 1)
		a.commandLock <- struct{}{}
	}
	return a.commandLock
}

func (a *Acquisition) unlockCommands() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.commandLock == nil {
		a.inCommand = false
		return
	}
	<-a.commandLock // has the caller's turn, so this does not block
}

func (a *Acquisition) holdCount() int {
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
		return ErrAlreadyReleased
	}
}

// OnLost implements watchdog.LossHandler. The watchdog calls it when the lease has ended. An unlock
// in flight finds that out by itself, and its result counts.
func (a *Acquisition) OnLost(r watchdog.Reason) {
	defer a.observeEnd(context.Background(), nil)
	a.mu.Lock()
	if a.state != live {
		a.mu.Unlock()
		return
	}
	a.markLost(a.lossOf(r))
	a.mu.Unlock()
	a.backend.OnLost(a)
	a.endIfUnused() // every hold may have been dropped: then no Unlock will come
}

// LoseNow ends an acquisition that the server no longer has. It does what the watchdog does after a
// renewal that was answered so, and returns when the holds are notified. It is for redlatchtest,
// whose tests do not wait for a renewal. If a release has begun, LoseNow leaves the rest to the
// release.
func (a *Acquisition) LoseNow() {
	if a.IsLive() {
		a.lease.MarkGone()
		a.OnLost(watchdog.GoneOnServer)
	}
}

// markGone is called when the server has answered a command that the lock is not this
// acquisition's. It returns the error for holders.
func (a *Acquisition) markGone() error {
	a.mu.Lock()
	if a.state == released {
		a.mu.Unlock()
		return ErrAlreadyReleased
	}
	fresh := a.state != lost
	if fresh {
		a.markLost(event.Gone)
		a.lease.MarkGone()
	}
	err := a.lostErr
	a.mu.Unlock()
	if fresh {
		a.backend.OnLost(a)
		a.endIfUnused()
	}
	return err
}

// markLost marks the acquisition as lost and ends all holds. The caller holds a.mu.
func (a *Acquisition) markLost(why event.Result) {
	a.state, a.lossResult = lost, why
	a.lostErr = &lockerr.LostError{
		Name: a.Name, IsPermit: a.IsPermit(), ID: a.ID, Reason: lossReasons[why], Lease: a.Settings.Lease, Age: time.Since(a.Sent),
	}
	a.notifyHolds(a.lostErr)
	if a.cancelCommand != nil {
		a.cancelCommand(a.lostErr)
	}
}

// notifyHolds ends all open holds without an Unlock, and closes their Lost channels. The caller
// holds a.mu.
func (a *Acquisition) notifyHolds(cause error) {
	for _, h := range a.open {
		h.cancelContexts(cause)
		if !h.notified && h.lost != nil {
			close(h.lost)
		}
		h.notified = true
	}
	for o := a.orphaned; o != nil; o = o.next {
		close(o.lost)
	}
	a.orphaned = nil
}

// endIfUnused calls Backend.OnEnded, once, if the acquisition has ended and no hold is open.
func (a *Acquisition) endIfUnused() {
	a.mu.Lock()
	done := len(a.open) == 0 && a.state != live && a.state != releasing && !a.isClosing
	a.mu.Unlock()
	if done {
		a.notifyBackend()
	}
}

// notifyBackend is for an acquisition that is over.
func (a *Acquisition) notifyBackend() {
	a.cleanUp()
	a.notifyEnded()
}

func (a *Acquisition) notifyEnded() {
	a.mu.Lock()
	first := !a.backendNotified
	a.backendNotified = true
	a.mu.Unlock()
	if first {
		a.backend.OnEnded(a)
	}
}

// cleanUp releases what the attempts in flight may yet get. It must not run before the acquisition
// is over: Redis may still have the lock under the same id, and an UnlockAfter may yet succeed.
func (a *Acquisition) cleanUp() {
	a.mu.Lock()
	first := !a.isCleanedUp
	a.isCleanedUp = true
	a.mu.Unlock()
	if first && a.InFlight.Any() {
		a.backend.CleanUp(a.ID, a.InFlight)
	}
}

// Loss returns the error of the loss of an acquisition that was lost, and otherwise nil.
func (a *Acquisition) Loss() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != lost {
		return nil
	}
	return a.lostErr
}

// IsLive reports whether the acquisition has the lock, as far as the client knows: it was not
// lost, and no release of it has begun.
func (a *Acquisition) IsLive() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == live
}

// NeedsUnlock reports whether the acquisition is live and stays so until the program unlocks a
// hold, or for ever, if its handles are garbage. It does not need an Unlock while the background
// finishes that of each hold.
func (a *Acquisition) NeedsUnlock() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != live {
		return false
	}
	return len(a.open) == 0 || slices.ContainsFunc(a.open, func(h *Hold) bool { return !h.unlockPending })
}

// OldestCallSite returns where the oldest hold that is still open was acquired.
func (a *Acquisition) OldestCallSite() CallSite {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.open) == 0 {
		return CallSite{}
	}
	return *a.open[0].callSite
}

// TrustedUntil returns the time when trust in the lease ends, unless it is renewed before.
func (a *Acquisition) TrustedUntil() time.Time { return a.lease.TrustedUntil() }
