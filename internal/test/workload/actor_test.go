package workload_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/workload"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
)

// The goal of this file: an actor records the answers that it got. The lock here gives the answers
// that the test sets.

type answers struct {
	locks   []error
	unlocks []error
	lost    chan struct{}
	trust   time.Duration
	closes  bool               // the client closes, and nothing else ends the holds
	waits   func(lock.Waiting) // of the actor
}

func next(errs *[]error) (err error) {
	if len(*errs) > 0 {
		err, *errs = (*errs)[0], (*errs)[1:]
	}
	return err
}

func (a *answers) Lock(ctx context.Context) (workload.Hold, error) {
	if err := next(&a.locks); err != nil {
		if errors.Is(err, errWait) {
			time.Sleep(time.Second)
			a.waits(lock.Waiting{Position: 2})
			time.Sleep(time.Second)
			a.waits(lock.Waiting{Position: 1, Requeued: true})
			<-ctx.Done()
			return nil, &lockerr.NotAcquiredError{Holder: "x", Err: ctx.Err()}
		}
		return nil, err
	}
	return hold{a, time.Now().Add(a.trust)}, nil
}

func (a *answers) TryLock(ctx context.Context) (workload.Hold, error) { return a.Lock(ctx) }

var errWait = errors.New("waits until it is stopped")

type hold struct {
	*answers
	until time.Time
}

func (hold) ID() string                     { return "c:1" }
func (hold) Fence() int64                   { return 7 }
func (h hold) Lost() <-chan struct{}        { return h.lost }
func (h hold) Unlock(context.Context) error { return next(&h.unlocks) }
func (hold) Context() context.Context       { return context.Background() }

func (h hold) TrustedUntil() time.Time {
	select {
	case <-h.lost:
		if h.closes {
			return time.Time{}
		}
	default:
	}
	return h.until
}

func play(t *testing.T, a *answers, plan ...workload.Step) history.History {
	return playWith(t, a, func(*workload.Actor) {}, plan...)
}

func playWith(t *testing.T, a *answers, with func(*workload.Actor), plan ...workload.Step) (h history.History) {
	synctest.Test(t, func(t *testing.T) {
		a.lost = make(chan struct{})
		if a.trust == 0 {
			a.trust = time.Hour
		}
		r := history.InMemory(history.Since(time.Now()))
		actor := &workload.Actor{Client: 1, Name: "n", Lock: a, Recorder: r, Resources: []check.Resource{check.NewMemory(true)}}
		a.waits = actor.Waits
		with(actor)
		time.AfterFunc(10*time.Second, func() { close(a.lost) })
		actor.Run(t.Context(), plan)
		time.Sleep(time.Minute)
		h = r.History()
	})
	return h
}

func step(v workload.Verb, d ...time.Duration) workload.Step {
	return workload.Step{Verb: v, For: append(d, 0)[0]}
}

// An actor with an UnlockLimit calls a failed Unlock again, as one operation. If the hold counts as
// released by then, that says no more than the failure did.
func TestUnlockIsTriedAgain(t *testing.T) {
	unavailable, notHeld := &lockerr.OpError{Kind: lockerr.ErrUnavailable}, &lockerr.OpError{Kind: lockerr.ErrNotHeld}
	for name, c := range map[string]struct {
		unlocks []error
		outcome history.Outcome
		again   int
	}{
		"the second time":   {[]error{unavailable, nil}, history.Done, 1},
		"lost":              {[]error{unavailable, &lockerr.LostError{}}, history.Lost, 1},
		"counts as given":   {[]error{unavailable, notHeld, notHeld, notHeld}, history.Unknown, 3},
		"it is not so kind": {[]error{notHeld}, history.Lost, 0},
	} {
		var actor *workload.Actor
		h := playWith(t, &answers{unlocks: c.unlocks}, func(a *workload.Actor) { a.UnlockLimit, actor = time.Second, a }, step(workload.Acquire), step(workload.Unlock))
		require.Equal(t, c.again, actor.TriedAgain(), name)
		require.Len(t, h.Ops, 2, name)
		require.Equal(t, c.outcome, h.Ops[1].Outcome, name)
	}
	once := play(t, &answers{unlocks: []error{unavailable, nil}}, step(workload.Acquire), step(workload.Unlock))
	require.Equal(t, history.Unknown, once.Ops[1].Outcome)
}

// The actor records the holds that Redis counts beside the holds that there are.
func TestHoldsAreCounted(t *testing.T) {
	counted := func(context.Context) (string, int, error) { return "c:1", 7, nil }
	again := step(workload.Acquire)
	h := playWith(t, &answers{}, func(a *workload.Actor) { a.Counted = counted }, again, again, step(workload.Count, time.Second))
	op := h.Ops[2]
	require.Equal(t, []any{history.Count, history.Done, "c:1", "c:1", 7, 2}, []any{op.Kind, op.Outcome, op.Acquisition, op.Holder, op.Units, op.InUse})
}

// An actor reports the loss of a hold.
func TestLossesAreSeen(t *testing.T) {
	plan := []workload.Step{step(workload.Acquire), step(workload.Sleep, 4*time.Second), step(workload.Unlock)}
	synctest.Test(t, func(t *testing.T) {
		a := &answers{lost: make(chan struct{}), trust: time.Hour}
		actor := &workload.Actor{Name: "n", Lock: a, Recorder: history.InMemory(history.Since(time.Now()))}
		actor.Run(t.Context(), plan)
		_, misled := actor.Misled()
		require.False(t, misled)
		close(a.lost)
		which, misled := actor.Misled()
		require.True(t, misled)
		require.Equal(t, "c:1", which)
	})
}

// Siblings work while their parent holds, each as a chain of its own.
func TestSiblingsWorkWithinAHold(t *testing.T) {
	h := playWith(t, &answers{}, func(a *workload.Actor) {
		for n := range 2 {
			a.Siblings = append(a.Siblings, workload.Sibling{
				Actor: &workload.Actor{Client: 7 + n, Name: "other", Lock: a.Lock, Recorder: a.Recorder, Bare: true},
				Plan:  []workload.Step{step(workload.Acquire), step(workload.Sleep, time.Second), step(workload.Unlock)},
			})
		}
		a.Bare = true
	}, step(workload.FanOut)).ByName()
	require.Len(t, h["n"].Ops, 2)
	require.Len(t, h["other"].Ops, 4)
	for _, op := range h["other"].Ops {
		require.Less(t, h["n"].Ops[0].Return, op.Call)
		require.Greater(t, h["n"].Ops[1].Call, op.Return)
	}
}

func TestOutcomesAreRecordedAsReported(t *testing.T) {
	unavailable := &lockerr.OpError{Kind: lockerr.ErrUnavailable}
	indeterminate := &lockerr.OpError{Kind: lockerr.ErrIndeterminate}
	a := &answers{
		locks:   []error{nil, nil, unavailable, nil, errWait, indeterminate, &lockerr.NotAcquiredError{Holder: "x"}, &lockerr.NotAcquiredError{}, &lockerr.OpError{Err: context.Canceled}},
		unlocks: []error{nil, unavailable, &lockerr.LostError{}},
	}
	again := step(workload.Acquire)
	h := play(t, a, again, again, again, step(workload.UnlockAll), again, step(workload.Unlock),
		step(workload.Cancel, time.Second), again, step(workload.Try), again, again)
	type operation struct {
		kind    history.Kind
		owner   string
		outcome history.Outcome
	}
	var got []operation
	for _, op := range h.Ops {
		got = append(got, operation{op.Kind, op.Owner, op.Outcome})
		require.Equal(t, op.Outcome == history.Unknown, op.Return == history.Never)
	}
	require.Equal(t, []operation{
		{history.Acquire, "1.1", history.Done},
		{history.Acquire, "1.1", history.Done}, // re-entered
		{history.Acquire, "1.1", history.Nothing},
		{history.Release, "1.1", history.Done},
		{history.Release, "1.1", history.Unknown}, // retried in the background
		{history.Acquire, "1.2", history.Done},    // the chain was in doubt
		{history.Release, "1.2", history.Lost},
		{history.Acquire, "1.3", history.Refused},
		{history.Acquire, "1.4", history.Unknown},
		{history.Try, "1.5", history.Refused},
		{history.Acquire, "1.6", history.Nothing},
		{history.Acquire, "1.7", history.Nothing},
	}, got)
}

// The actor records notices from a queue when they come. It does not record that a wait was given
// up before that happened.
func TestWaitsInQueuesAreTakenDown(t *testing.T) {
	h := play(t, &answers{locks: []error{errWait, nil}}, step(workload.Acquire, 5*time.Second), step(workload.Acquire))
	require.Len(t, h.Ops, 3)
	for at, want := range map[int64]time.Duration{h.Ops[0].Queued: time.Second, h.Ops[0].Again: 2 * time.Second, h.Ops[0].GaveUp: 5 * time.Second} {
		require.InDelta(t, want, at, float64(time.Millisecond))
	}
	require.Less(t, h.Ops[0].GaveUp, h.Ops[0].Return)
	require.Zero(t, h.Ops[1].Queued)
	require.Zero(t, h.Ops[1].GaveUp)
}

// A window claims no more than the library did. It ends before the loss, and at the end of trust,
// whatever the actor still does.
func TestWindowsEndWithTrust(t *testing.T) {
	sleeps := []workload.Step{step(workload.Acquire), step(workload.Sleep, 4*time.Second), step(workload.Sleep, 40*time.Second)}
	lost := play(t, &answers{}, sleeps...).Windows
	require.Len(t, lost, 1)
	require.InDelta(t, 4*time.Second, lost[0].Until, float64(time.Millisecond), "the last look before the loss")
	over := play(t, &answers{trust: 2500 * time.Millisecond}, sleeps...).Windows
	require.InDelta(t, 2500*time.Millisecond, over[0].Until, float64(time.Millisecond))
	windows := play(t, &answers{trust: 10 * time.Second}, sleeps...).Windows
	require.InDelta(t, 10*time.Second, windows[0].Until, float64(time.Millisecond), "the loss that is reported when trust ends, between two looks")
	closed := play(t, &answers{trust: 10 * time.Second, closes: true}, sleeps...).Windows
	require.InDelta(t, 4*time.Second, closed[0].Until, float64(time.Millisecond), "a client that closes as trust ends")
	require.Equal(t, int64(7), over[0].Fence)
}

// When a client closes, its holds count as held until the last check that found them held.
func TestClosingIsTakenDownForWhatWasHeld(t *testing.T) {
	closed := &lockerr.OpError{Kind: lockerr.ErrClosed}
	h := play(t, &answers{locks: []error{nil, nil, closed}}, step(workload.Acquire), step(workload.Acquire), step(workload.Sleep, time.Second), step(workload.Try), step(workload.Try))
	require.Len(t, h.Ops, 5, "and then it ends")
	released := 0
	for _, op := range h.Ops {
		if op.Kind == history.Release {
			released++
			require.Equal(t, history.Unknown, op.Outcome)
			require.LessOrEqual(t, op.Call, int64(time.Second+time.Millisecond))
		}
	}
	require.Equal(t, 2, released)
}

// If the outcome of an Unlock is unknown, the fate of its hold before the Unlock is unknown too,
// because the client may have closed and released it.
func TestUnlockOfUnknownOutcomeIsTakenDownFromTheLastLook(t *testing.T) {
	unlocked := func(a *answers, after time.Duration) history.Op {
		a.unlocks = []error{&lockerr.OpError{Kind: lockerr.ErrIndeterminate}}
		h := play(t, a, step(workload.Acquire), step(workload.Sleep, 4*time.Second), step(workload.Sleep, after), step(workload.Unlock))
		require.Len(t, h.Ops, 2)
		require.Equal(t, history.Unknown, h.Ops[1].Outcome)
		return h.Ops[1]
	}
	held := unlocked(&answers{}, 4*time.Second)
	require.InDelta(t, 8*time.Second, held.Call, float64(time.Millisecond))
	closed := unlocked(&answers{closes: true}, 40*time.Second)
	require.InDelta(t, 4*time.Second, closed.Call, float64(time.Millisecond), "the last look before it closed")
}

// units is a lock with units that records what an actor requests.
type units struct {
	answers

	asked []int
}

func (u *units) Of(n int) workload.Lock {
	u.asked = append(u.asked, n)
	return &u.answers
}

func (u *units) Resize(_ context.Context, limit int) error {
	u.asked = append(u.asked, -limit)
	return next(&u.unlocks)
}

// The actor records the units that it takes of a semaphore, and the numbers in refusals.
func TestUnitsAreTakenDown(t *testing.T) {
	u := &units{answers: answers{trust: time.Hour, lost: make(chan struct{}),
		locks:   []error{nil, &lockerr.NotAcquiredError{Limit: 3, InUse: 2, Position: 4}, &lockerr.LimitError{Units: 2}},
		unlocks: []error{nil, &lockerr.OpError{Kind: lockerr.ErrIndeterminate}},
	}}
	r := history.InMemory(history.Since(time.Now()))
	a := &workload.Actor{Client: 1, Name: "n", Lock: u, Recorder: r}
	take := func(v workload.Verb, n int) workload.Step { return workload.Step{Verb: v, Units: n} }
	a.Run(t.Context(), []workload.Step{take(workload.Acquire, 3), take(workload.Resize, 5), take(workload.Try, 2), take(workload.Acquire, 2), take(workload.Resize, 1)})
	require.Equal(t, []int{3, -5, 2, 2, -1}, u.asked)
	type operation struct {
		kind                history.Kind
		outcome             history.Outcome
		units, inUse, ahead int
	}
	var got []operation
	for _, op := range r.History().Ops {
		got = append(got, operation{op.Kind, op.Outcome, op.Units, op.InUse, op.Ahead})
	}
	require.Equal(t, []operation{
		{history.Acquire, history.Done, 3, 0, 0},
		{history.Resize, history.Done, 5, 0, 0},
		{history.Try, history.Refused, 2, 2, 3},
		{history.Acquire, history.TooMany, 2, 0, 0},
		{history.Resize, history.Unknown, 1, 0, 0},
		{history.Release, history.Done, 3, 0, 0},
	}, got)
	w := r.History().Windows[0]
	require.Equal(t, 3, w.Units)
	require.Equal(t, r.History().Ops[0].Call, w.Call)
}

// slow gives each answer long after the end of the context. An unlock ends the context that
// endsByUnlock cancels.
type slow struct {
	*answers
	endsByUnlock context.CancelFunc
}

func (s slow) Lock(ctx context.Context) (workload.Hold, error) {
	h, err := s.answers.Lock(ctx)
	if _, bounded := ctx.Deadline(); bounded {
		<-ctx.Done()
		time.Sleep(time.Second)
	}
	return slowHold{h, s.endsByUnlock}, err
}

type slowHold struct {
	workload.Hold
	ends context.CancelFunc
}

func (slowHold) Context() context.Context { return context.Background() }

func (h slowHold) Unlock(ctx context.Context) error {
	h.ends()
	<-ctx.Done()
	time.Sleep(time.Second)
	return h.Hold.Unlock(ctx)
}

// A call that outlasts its context is noticed. One whose context had ended before is not, and one
// whose context ends in the instant of the call is not either.
func TestAnActorSaysWhichCallReturnedLate(t *testing.T) {
	const limit = 50 * time.Millisecond
	for name, c := range map[string]struct {
		plan []workload.Step
		ends bool
		says string
	}{
		"lock":          {[]workload.Step{{Verb: workload.Acquire, For: limit}, {Verb: workload.UnlockLate}}, false, "acquire"},
		"unlock within": {[]workload.Step{{Verb: workload.Acquire}, {Verb: workload.UnlockWithin, For: limit}}, false, "unlock within"},
		"unlock late":   {[]workload.Step{{Verb: workload.Acquire}, {Verb: workload.UnlockLate}}, false, ""},
		"ends at once":  {[]workload.Step{{Verb: workload.Acquire}, {Verb: workload.Unlock}}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				defer end()
				ends := func() {}
				if c.ends {
					ends = end
				}
				a := &workload.Actor{
					Lock:     slow{&answers{trust: time.Hour}, ends},
					Recorder: history.InMemory(history.Since(time.Now())),
				}
				a.Run(ctx, c.plan)
				if c.says == "" {
					require.NoError(t, a.Late())
					return
				}
				require.ErrorContains(t, a.Late(), c.says+" returned 1s after the end of its context")
			})
		})
	}
}
