package workload

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
)

// Actor does one step after the other with one lock. Set its fields before Run.
type Actor struct {
	Client    int // no two actors have the same
	Name      string
	Lock      Lock
	Recorder  *history.Recorder
	Meaning   Meaning          // Redlatch if nil
	Resources []check.Resource // the resources that Work writes to
	// Rest is how long the actor waits after an acquire with an unknown outcome. Without Rest, it
	// starts dozens of acquires while a server is silent for a moment. Then there are too many
	// possible histories for a search.
	Rest time.Duration
	// Lease is the shortest lease with which Attach may have got the lock.
	Lease time.Duration
	// UnlockLimit is the time limit of an Unlock, which is called again if it fails. 0: no limit,
	// and one call.
	UnlockLimit time.Duration
	// Within returns the lock with a wait timeout, for Hurry. nil: the lock has none, and the
	// context ends instead.
	Within func(d time.Duration) Lock
	// Counted asks Redis who has the lock, and with how many holds. It is for Count.
	Counted func(ctx context.Context) (acquisition string, holds int, err error)
	// Siblings run at the same time with the context of the hold of a FanOut. Each has a lock and a
	// plan of its own.
	Siblings []Sibling
	// Bare actors set no owner. Each acquire belongs to the chain of ctx, or to none.
	Bare bool
	// Endless actors call with contexts that nothing can end, unless the step has a time limit.
	Endless bool
	// Mortal actors make each call in a goroutine of its own, which a hook may end.
	Mortal bool

	call   *history.Call // the acquire in progress
	chain  chain
	doubt  bool // the chain may have more than its answers show
	chains int
	holds  []held
	over   bool  // the client has closed
	late   error // the first call that returned long after its context had ended
	broken error // the first promise that was broken
	again  int   // number of Unlocks that were called again
	// seen keeps every handle. In virtual time, the garbage collector would otherwise clean up
	// outside the bubble.
	seen []Hold
}

// Sibling is an actor with its plan in a FanOut.
type Sibling struct {
	*Actor

	Plan []Step
}

// chain is a logical owner. If a call has left a chain in doubt, the chain may still have
// something. The actor uses another chain for the next grant, so that nobody mistakes the one for
// the other.
type chain struct {
	name  string
	owner *owner.Owner
}

type held struct {
	hold   Hold
	owner  string
	window history.Window

	trust int64 // the end of trust, as last read
	lost  bool
}

// Run does the steps, and at the end releases the holds that are left. It returns early if the
// client closes, which releases them, or if ctx ends, and then nothing is released.
func (a *Actor) Run(ctx context.Context, plan []Step) {
	if a.Meaning == nil {
		a.Meaning = Redlatch
	}
	for _, s := range append(slices.Clone(plan), Step{Verb: UnlockAll}) {
		if ctx.Err() != nil {
			if a.Bare { // the hold of ctx ended because its client has closed
				a.closed()
			}
			return
		}
		if a.do(ctx, s); a.over {
			a.closed()
			return
		}
	}
}

// closed records that closing the client releases the holds. Nobody here knows when, except that it
// was not before the last check that found them held.
func (a *Actor) closed() {
	for _, h := range a.holds {
		op := a.release(h)
		op.Call = h.window.Until
		a.Recorder.Begin(op)
	}
	a.holds = nil
}

func (a *Actor) release(h held) history.Op {
	return history.Op{
		Client: a.Client, Name: a.Name, Owner: h.owner, Kind: history.Release, Units: h.window.Units,
		Fence: h.hold.Fence(), Acquisition: h.hold.ID(),
	}
}

func (a *Actor) do(ctx context.Context, s Step) {
	last := len(a.holds) - 1
	switch s.Verb {
	case Acquire, Cancel, Hurry, Try:
		a.acquire(ctx, s)
	case Resize:
		a.resize(ctx, s.Units)
	case FanOut:
		a.fanOut(ctx, s)
	case Sleep:
		a.sleep(ctx, s.For)
	case UnlockAll:
		for len(a.holds) > 0 && !a.over {
			a.unlock(ctx, len(a.holds)-1)
		}
	}
	if last < 0 {
		return // the other steps need a hold
	}
	switch s.Verb {
	case Unlock:
		a.unlock(ctx, last)
	case UnlockFirst:
		a.unlock(ctx, 0)
	case UnlockLate:
		dead, cancel := context.WithCancel(ctx)
		cancel()
		a.unlock(dead, last)
	case UnlockWithin:
		a.unlockWithin(ctx, last, s.For)
	case Work:
		a.work(ctx, s.For)
	case Count:
		a.count(ctx, s.For)
	case Keep:
		a.keep(ctx, s.For, s.First)
	case Pass:
		a.pass(ctx, s.For, s.First)
	}
}

func (a *Actor) acquire(ctx context.Context, s Step) {
	if len(a.holds) == 0 && (a.doubt || a.chains == 0 || a.Bare) {
		a.doubt = false
		a.chains++
		a.chain = chain{name: fmt.Sprintf("%d.%d", a.Client, a.chains), owner: owner.New()}
	}
	began := a.Recorder.Now()
	bounded, cancel := a.bound(a.owned(ctx), s)
	defer cancel()
	op := history.Op{Client: a.Client, Name: a.Name, Owner: a.chain.name, Kind: history.Acquire, Units: s.Units}
	l := a.Lock
	hurry := s.Verb == Hurry && a.Within != nil
	if hurry {
		l = a.Within(s.For)
	}
	if s.Units != 0 {
		l = l.(Units).Of(s.Units)
	}
	take := l.Lock
	if s.Verb == Try {
		op.Kind, take = history.Try, l.TryLock
	}
	a.sample()
	a.call = a.Recorder.Begin(op)
	returned := a.expectReturn(bounded, s.Verb)
	if hurry {
		returned = a.expectEnd(s)
	}
	var hold Hold
	err := a.survive(func() (err error) {
		hold, err = take(bounded)
		return err
	})
	returned()
	if hurry && err != nil && ctx.Err() == nil {
		a.expectKind(err)
	}
	op = a.call.End(func(op *history.Op) {
		if err != nil {
			a.fail(op, err)
			if op.Outcome == history.Refused && s.For > 0 && ctx.Err() == nil { // the step's own end
				op.GaveUp = began + (s.For - instant).Nanoseconds()
			}
			return
		}
		op.Outcome, op.Fence, op.Acquisition = history.Done, hold.Fence(), hold.ID()
	})
	if err == nil {
		a.begin(hold, op)
	}
	a.doubt = a.doubt || err != nil
	a.sample()
	if a.Rest > 0 && (op.Outcome == history.Unknown || errors.Is(err, lockerr.ErrRefused)) {
		a.sleep(ctx, a.Rest)
	}
}

// owned returns ctx with the chain of the actor.
func (a *Actor) owned(ctx context.Context) context.Context {
	if a.Bare {
		return ctx
	}
	return owner.NewContext(ctx, a.chain.owner)
}

// instant is longer than the difference between stamps of one instant in a bubble.
const instant = time.Microsecond

// Waits records that the acquire in progress has a place in a queue, or has one again. It is for
// redlatch.WithWaitCallback.
func (a *Actor) Waits(w lock.Waiting) {
	now := a.Recorder.Now()
	a.call.Note(func(op *history.Op) {
		if op.Queued == 0 {
			op.Queued = now
		}
		if w.Requeued {
			op.Again = now
		}
	})
}

// bound returns the context for an acquire.
func (a *Actor) bound(ctx context.Context, s Step) (context.Context, context.CancelFunc) {
	switch {
	case s.For == 0 && a.Endless:
		return context.WithoutCancel(ctx), func() {}
	case s.For == 0:
		return context.WithCancel(ctx)
	case s.Verb == Hurry && a.Within != nil: // the lock has the limit
		return context.WithCancel(ctx)
	case s.Verb == Cancel:
		ctx, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(s.For, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	}
	return context.WithTimeout(ctx, s.For)
}

func (a *Actor) fail(op *history.Op, err error) {
	op.Err = err.Error()
	var busy *lockerr.NotAcquiredError
	if errors.As(err, &busy) {
		op.Holder, op.InUse, op.Ahead = busy.Holder, busy.InUse, max(busy.Position-1, 0)
	}
	var over bool
	op.Outcome, over = a.Meaning(op.Kind, err)
	a.over = a.over || over
}

func (a *Actor) begin(hold Hold, op history.Op) {
	a.seen = append(a.seen, hold)
	a.holds = append(a.holds, held{hold: hold, owner: op.Owner, window: history.Window{
		Client: a.Client, Name: a.Name, Owner: op.Owner, Units: op.Units, Fence: op.Fence, Acquisition: op.Acquisition,
		Call: op.Call, From: op.Return, Until: op.Return,
	}})
	a.sample()
}

func (a *Actor) resize(ctx context.Context, limit int) {
	call := a.Recorder.Begin(history.Op{Client: a.Client, Name: a.Name, Kind: history.Resize, Units: limit})
	err := a.survive(func() error { return a.Lock.(Units).Resize(ctx, limit) })
	call.End(func(op *history.Op) {
		op.Outcome = history.Done
		if err != nil {
			a.fail(op, err)
		}
	})
}

// unlock unlocks. With a limit, each call gives up after that time.
func (a *Actor) unlock(ctx context.Context, i int) {
	hold := a.holds[i].hold
	a.unlockBy(ctx, i, func() error {
		bounded, cancel := a.bound(ctx, Step{For: a.UnlockLimit})
		defer cancel()
		defer a.expectReturn(bounded, Unlock)()
		return a.survive(func() error { return hold.Unlock(bounded) })
	})
}

// unlockWithin unlocks with the context of the hold itself. That context ends when the unlock
// begins, so the time limit below it is the only end.
func (a *Actor) unlockWithin(ctx context.Context, i int, limit time.Duration) {
	hold := a.holds[i].hold
	a.unlockBy(ctx, i, func() error {
		own, cancel := context.WithTimeout(hold.(Nesting).Context(), limit)
		defer cancel()
		if own.Err() == nil { // the first time
			watched, stop := context.WithTimeout(context.WithoutCancel(own), limit)
			defer stop()
			defer a.expectReturn(watched, UnlockWithin)()
		}
		return a.survive(func() error { return hold.Unlock(own) })
	})
}

// survive makes a call. If a hook ends the goroutine of the call, its outcome is unknown.
func (a *Actor) survive(call func() error) error {
	if !a.Mortal {
		return call()
	}
	ended := make(chan error, 1)
	go func() {
		var err error = &lockerr.OpError{Kind: lockerr.ErrIndeterminate, Op: "call", Name: a.Name, Err: errExited}
		defer func() { ended <- err }()
		err = call()
	}()
	return <-ended
}

var errExited = errors.New("a hook ended its goroutine")

// unlockBy unlocks, as one operation. With a limit, it calls an unlock that failed again after a
// pause, up to three times. If the hold counts as released by then, that says no more than the
// failure did.
func (a *Actor) unlockBy(ctx context.Context, i int, unlock func() error) history.Op {
	a.sample()
	h := a.holds[i]
	a.holds = slices.Delete(a.holds, i, i+1)
	call := a.Recorder.Begin(a.release(h))
	err := unlock()
	for tries := 0; a.UnlockLimit > 0 && failed(err) && tries < 3; tries++ {
		wait(ctx, a.UnlockLimit)
		a.again++
		if again := unlock(); !errors.Is(again, lockerr.ErrNotHeld) {
			err = again
		}
	}
	op := call.End(func(op *history.Op) {
		op.Outcome = history.Done
		if err != nil {
			a.fail(op, err)
		}
		if op.Outcome == history.Nothing { // the client retries in the background
			op.Outcome = history.Unknown
		}
		if op.Outcome == history.Unknown { // the client may have closed before, or the lease may have ended
			op.Call = h.window.Until
		}
	})
	a.doubt = a.doubt || err != nil
	return op
}

// expectReturn watches a call that must end with ctx. The result is for the time when it has
// returned. It does not judge a call whose context ends in the instant of the call: an Unlock may
// see the context ended, and then has the time of one command.
func (a *Actor) expectReturn(ctx context.Context, what Verb) (returned func()) {
	if ctx.Err() != nil {
		return func() {}
	}
	began, ended := time.Now(), make(chan time.Time, 1)
	stop := context.AfterFunc(ctx, func() { ended <- time.Now() })
	return func() {
		if stop() {
			return
		}
		end := <-ended
		if late := time.Since(end); late > moment && end.After(began) && a.late == nil {
			a.late = fmt.Errorf("actor %d: %v returned %v after the end of its context", a.Client, Step{Verb: what}, late)
		}
	}
}

// expectEnd is expectReturn for a lock that has a wait timeout.
func (a *Actor) expectEnd(s Step) (returned func()) {
	began := time.Now()
	return func() {
		if late := time.Since(began) - s.For; late > moment && a.late == nil {
			a.late = fmt.Errorf("actor %d: %v returned %v after the end of its time", a.Client, s, late)
		}
	}
}

// expectKind checks the error of an acquire whose context goes on: it says what happened.
func (a *Actor) expectKind(err error) {
	for _, kind := range []error{
		lockerr.ErrNotAcquired, lockerr.ErrUnavailable, lockerr.ErrIndeterminate, lockerr.ErrRefused, lockerr.ErrLost,
		lockerr.ErrNotReplicated, lockerr.ErrClosed, lockerr.ErrConfig,
	} {
		if errors.Is(err, kind) {
			return
		}
	}
	if a.broken == nil {
		a.broken = fmt.Errorf("actor %d: the error of an acquire does not say what happened: %w", a.Client, err)
	}
}

// moment is how long after the end of its context a call may return.
const moment = 100 * time.Millisecond

// Late returns an error about the first call that returned long after its context had ended. It is
// for virtual time, where nothing else takes time.
func (a *Actor) Late() error { return a.late }

// failed reports whether the error of an Unlock means that it may be called again.
func failed(err error) bool {
	return errors.Is(err, lockerr.ErrIndeterminate) || errors.Is(err, lockerr.ErrUnavailable) || errors.Is(err, lockerr.ErrRefused)
}

// TriedAgain is how often the actor called an Unlock again.
func (a *Actor) TriedAgain() int { return a.again }

// Misled returns the first acquisition whose holder was notified of a loss, although no loss can
// have happened. It is for histories in which nothing ends by itself, and no client closes.
func (a *Actor) Misled() (acquisition string, misled bool) {
	for _, h := range a.seen {
		select {
		case <-h.Lost():
			return h.ID(), true
		default:
		}
	}
	return "", false
}

// count records how many holds Redis counts, and how many there are. It first rests, with nothing
// of this owner in progress.
func (a *Actor) count(ctx context.Context, rest time.Duration) {
	a.sleep(ctx, rest)
	h := a.holds[len(a.holds)-1]
	call := a.Recorder.Begin(history.Op{
		Client: a.Client, Name: a.Name, Owner: h.owner, Kind: history.Count, Acquisition: h.hold.ID(), InUse: len(a.holds),
	})
	var holder string
	var holds int
	err := a.survive(func() (err error) {
		holder, holds, err = a.Counted(ctx)
		return err
	})
	call.End(func(op *history.Op) {
		op.Outcome, op.Holder, op.Units = history.Done, holder, holds
		if err != nil {
			a.fail(op, err)
		}
	})
}

// fanOut runs the siblings with the context of a hold of their parent. It releases the hold when
// all siblings are done.
func (a *Actor) fanOut(ctx context.Context, s Step) {
	if len(a.holds) > 0 {
		return
	}
	a.acquire(ctx, Step{Verb: Acquire, For: s.For, Units: s.Units})
	if len(a.holds) == 0 {
		return
	}
	within := a.holds[0].hold.(Nesting).Context()
	var all sync.WaitGroup
	for _, sibling := range a.Siblings {
		all.Go(func() { sibling.Run(within, sibling.Plan) })
	}
	all.Wait()
	a.unlock(ctx, 0)
}

// work updates the resources that the lock protects. The resource counts updates that it refuses,
// or that others undo.
func (a *Actor) work(ctx context.Context, think time.Duration) {
	if len(a.Resources) == 0 {
		a.sleep(ctx, think)
	}
	fence := a.holds[len(a.holds)-1].hold.Fence()
	for _, r := range a.Resources {
		_ = check.Increment(ctx, r, fence, func() { a.sleep(ctx, think) })
	}
}

// sleep waits, and checks a few times meanwhile whether its holds are trusted.
func (a *Actor) sleep(ctx context.Context, d time.Duration) {
	const looks = 4
	if len(a.holds) == 0 {
		wait(ctx, d)
		return
	}
	for range looks {
		a.attend(ctx, d/looks)
		a.sample()
	}
}

// attend waits, and checks immediately when a hold is lost.
func (a *Actor) attend(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		waits := []reflect.SelectCase{receive(timer.C), receive(ctx.Done())}
		over := len(waits)
		for _, h := range a.holds {
			if !h.lost {
				waits = append(waits, receive(h.hold.Lost()))
			}
		}
		if which, _, _ := reflect.Select(waits); which < over {
			return
		}
		a.sample()
	}
}

func receive(c any) reflect.SelectCase {
	return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// sample records that holds are still trusted. A window grows only to an instant before a loss, and
// not beyond the end of trust. If the loss is notified when trust ends, the window extends to that
// end. So a window never claims more than the library did. In other cases nobody here knows when
// the holder was notified of a loss, or of the close of the client. Then the window ends with the
// previous check.
func (a *Actor) sample() {
	const hair = time.Millisecond // two clocks are read for the end of trust
	for i := range a.holds {
		h := &a.holds[i]
		if h.lost {
			continue
		}
		now, left := a.Recorder.Now(), time.Until(h.hold.TrustedUntil())
		select {
		case <-h.hold.Lost():
			h.lost = true
			closed := h.hold.TrustedUntil().IsZero()
			if closed || h.trust > now+hair.Nanoseconds() {
				continue
			}
		default:
			h.trust = now + left.Nanoseconds()
		}
		if until := min(now, h.trust); until > h.window.Until {
			h.window.Until = until
			a.Recorder.Trust(h.window)
		}
	}
}
