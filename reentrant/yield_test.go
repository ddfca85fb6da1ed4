package reentrant

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// turns plays releases of one client, each of which follows the one before it after
// a hold and whatever the client yields. A waiter of another client, if there is one,
// gets the lock when the client yields for at least as long as it is away.
type turns struct {
	yieldPolicy
	now    time.Time
	hold   time.Duration
	h      subscriberCount
	waiter time.Duration // how far away; 0: there is none
	flaps  time.Duration // one more subscriber is there, and then is not, for so long each; 0: there is none

	yields int
	idle   bool          // the last answer
	cost   time.Duration // of yields that nobody used
	served int
}

func newTurns(h subscriberCount) *turns {
	return &turns{now: time.Unix(0, 0), hold: 300 * time.Microsecond, h: h}
}

func (s *turns) play(releases int) {
	for range releases {
		s.now = s.now.Add(s.hold)
		h := s.h
		if s.flaps > 0 && s.now.UnixNano()/int64(s.flaps)%2 == 1 {
			h.counted++
		}
		s.idle = s.noteRelease(s.now, h, 0)
		if s.until.IsZero() {
			continue
		}
		s.yields++
		if s.waiter > 0 && s.length >= s.waiter {
			s.served++
			s.otherHeld = true
			continue
		}
		s.cost += s.length
		s.now = s.until
	}
}

var (
	alone     = subscriberCount{}
	monitored = subscriberCount{counted: 1}
	clustered = subscriberCount{mayBeMore: true}
)

func TestYielding_NobodyIsThere(t *testing.T) {
	s := newTurns(alone)
	s.play(10_000)
	require.Zero(t, s.yields)
}

// A subscriber of all channels hears every release, and never comes.
func TestYielding_ListenersThatNeverComeCostLittle(t *testing.T) {
	for name, h := range map[string]subscriberCount{"monitored": monitored, "clustered": clustered} {
		t.Run(name, func(t *testing.T) {
			s := newTurns(h)
			s.play(1000)
			s.yields, s.cost = 0, 0
			begin := s.now
			s.play(1_000_000)
			require.Less(t, 100*s.cost, 3*s.now.Sub(begin))
			require.LessOrEqual(t, s.yields, 3000, "of a million")
			require.True(t, s.idle)
		})
	}
}

// A subscriber of all channels that reconnects again and again is new each time. It gets
// one series of yields, and then probes, however fast it comes and goes.
func TestYielding_ASubscriberThatComesAndGoesCostsLittle(t *testing.T) {
	for _, h := range []subscriberCount{alone, monitored, clustered} {
		for _, flaps := range []time.Duration{
			time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond, time.Second, time.Minute,
		} {
			t.Run(fmt.Sprintf("%+v %v", h, flaps), func(t *testing.T) {
				s := newTurns(h)
				s.flaps = flaps
				for begin := s.now; s.now.Sub(begin) < 3*flaps+time.Second; {
					s.play(1) // it has come, and its series is over
				}
				begin := s.now
				s.cost = 0
				s.play(1_000_000)
				require.Less(t, 100*s.cost, 3*s.now.Sub(begin))
			})
		}
	}
}

// A waiter that comes while a monitor comes and goes gets the lock by a probe, and from
// then on as any other.
func TestYielding_AWaiterBehindASubscriberThatComesAndGoesIsLetIn(t *testing.T) {
	s := newTurns(alone)
	s.flaps = 20 * time.Millisecond
	s.play(50_000)
	s.h, s.waiter = subscriberCount{counted: 1}, time.Millisecond
	s.play(500)
	require.Positive(t, s.served)
	served := s.served
	s.play(100)
	require.GreaterOrEqual(t, s.served-served, 49)
}

// Another client that was seen with the lock is worth a series again: the next new
// subscriber is as likely to come.
func TestYielding_AfterAnotherClientNewSubscribersGetTries(t *testing.T) {
	s := newTurns(subscriberCount{counted: 1})
	s.play(1000)
	require.True(t, s.idle)
	s.otherHeld = true
	s.play(1000)
	s.h.counted++
	s.yields = 0
	s.play(triesForNew)
	require.Equal(t, triesForNew, s.yields)
}

// The same holds if nobody received the release after which the other client was seen.
func TestYielding_AnotherClientThatLeftIsWorthASeries(t *testing.T) {
	s := newTurns(subscriberCount{counted: 1})
	s.play(1000)
	s.otherHeld, s.h.counted = true, 0
	s.play(1)
	s.h.counted, s.yields = 1, 0
	s.play(triesForNew)
	require.Equal(t, triesForNew, s.yields)
}

// What one lock has found out about listeners holds for the others.
func TestYielding_ListenersThatAreKnownGetNoTries(t *testing.T) {
	s := newTurns(monitored)
	s.play(triesForNew + 1)
	require.Equal(t, triesForNew+1, s.yields, "the tries, and the first probe")
	require.True(t, s.idle)

	s = newTurns(subscriberCount{counted: 1, idle: 1})
	s.play(100)
	require.Equal(t, 1, s.yields, "a probe")
}

func TestYielding_WaitersAreLetIn(t *testing.T) {
	cases := map[string]struct {
		h      subscriberCount
		waiter time.Duration
		within int // releases
	}{
		"single server, near":         {subscriberCount{counted: 1}, time.Millisecond, 1},
		"single server, far":          {subscriberCount{counted: 1}, 30 * time.Millisecond, 6},
		"single server, at the end":   {subscriberCount{counted: 1}, 90 * time.Millisecond, 8},
		"monitored, near":             {subscriberCount{counted: 2, idle: 1}, time.Millisecond, 1},
		"monitored, far":              {subscriberCount{counted: 2, idle: 1}, 30 * time.Millisecond, 6},
		"cluster, near":               {clustered, time.Millisecond, 500},
		"cluster, in the same region": {clustered, 4 * time.Millisecond, 4 * 500},
		"cluster, far":                {clustered, 16 * time.Millisecond, 16 * 500},
		"cluster, at the end":         {clustered, 90 * time.Millisecond, 64 * 500},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := c.h
			before.counted = c.h.idle
			s := newTurns(before)
			s.play(5000) // nobody was there for long
			s.h, s.waiter = c.h, c.waiter
			s.play(c.within)
			require.Positive(t, s.served)

			served := s.served
			s.play(100)
			require.GreaterOrEqual(t, s.served-served, 49, "and from then on at least every other time")
		})
	}
}

// Yields end with the contention.
func TestYielding_NobodyComesAnyMore(t *testing.T) {
	s := newTurns(clustered)
	s.waiter = 4 * time.Millisecond
	s.play(20_000)
	require.Greater(t, s.served, 1000)
	s.waiter, s.yields = 0, 0
	s.play(100)
	require.LessOrEqual(t, s.yields, triesAfterOther+1)
}

// The yield is not longer than a waiter needs for long: the lock is idle meanwhile.
func TestYielding_GetsShorterWhileItHelps(t *testing.T) {
	s := newTurns(subscriberCount{counted: 1})
	s.waiter = 30 * time.Millisecond
	s.play(50)
	s.waiter = time.Millisecond
	s.play(10)
	require.LessOrEqual(t, s.length, 2*time.Millisecond)
}

// A command that took long by chance does not make the pauses long.
func TestYielding_ASlowReleaseIsNoMeasure(t *testing.T) {
	s := newTurns(clustered)
	s.noteRelease(s.now, s.h, time.Second)
	require.LessOrEqual(t, s.length, longestYield/8)
	require.LessOrEqual(t, s.nextProbe.Sub(s.now), 2*time.Second)
}
