package reentrant

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// release plays one release, at the end of the yield before it. It returns the next yield, which is
// 0 if there is none.
func (y *yieldPolicy) release(now *time.Time, h subscriberCount, roundTrip time.Duration) (yields time.Duration, idle bool) {
	if now.Before(y.until) {
		*now = y.until
	}
	idle = y.noteRelease(*now, h, roundTrip)
	if y.until.IsZero() {
		return 0, idle
	}
	return y.until.Sub(*now), idle
}

// A new subscriber gets eight yields, each twice as long as the one before it, and then probes.
func TestYielding_ANewSubscriberGetsOneSeries(t *testing.T) {
	var y yieldPolicy
	now := time.Unix(1000, 0)
	for i, want := range []time.Duration{1 * ms, 2 * ms, 4 * ms, 8 * ms, 16 * ms, 32 * ms, 64 * ms, 100 * ms} {
		yields, idle := y.release(&now, monitored, 0)
		require.Equal(t, want, yields)
		require.False(t, idle)
		require.Equal(t, i < 7, y.trying)
		require.Equal(t, i == 7, y.exhausted)
	}
	yields, idle := y.release(&now, monitored, 0)
	require.Equal(t, ms, yields, "a probe")
	require.True(t, idle)
	probed := now
	yields, idle = y.release(&now, monitored, 0)
	require.Zero(t, yields)
	require.True(t, idle)
	more := subscriberCount{counted: 2}
	now = probed.Add(150*ms - 1)
	yields, _ = y.release(&now, more, 0)
	require.Zero(t, yields, "no second series")
	now = probed.Add(150 * ms)
	yields, _ = y.release(&now, more, 0)
	require.Equal(t, ms, yields, "the next probe")
}

// Another client was seen with the lock. The yield is half of the last one, then twice as long, and
// then the client stops.
func TestYielding_AfterAnotherClientTwoYieldsMayBeInVain(t *testing.T) {
	for _, y := range []yieldPolicy{
		{length: 8 * ms, subscribers: 1, otherHeld: true},
		{length: 8 * ms, subscribers: 1, otherHeld: true, tries: 5, trying: true},
		{length: 8 * ms, subscribers: 1, otherHeld: true, exhausted: true},
	} {
		now := time.Unix(1000, 0)
		for _, want := range []time.Duration{4 * ms, 8 * ms} {
			yields, idle := y.release(&now, monitored, 0)
			require.Equal(t, want, yields)
			require.False(t, idle)
			require.False(t, y.otherHeld)
			require.False(t, y.trying)
			require.False(t, y.exhausted)
		}
		yields, idle := y.release(&now, monitored, 0)
		require.Equal(t, ms, yields, "a probe")
		require.True(t, idle)
	}
}

// A series begins with the shortest yield, unless the length is known from another client.
func TestYielding_ASeriesBeginsWithWhatIsKnown(t *testing.T) {
	now := time.Unix(1000, 0)
	y := yieldPolicy{length: 64 * ms, subscribers: 1}
	yields, _ := y.release(&now, subscriberCount{counted: 2}, 0)
	require.Equal(t, ms, yields)

	for _, tries := range []int{1, 2} {
		y = yieldPolicy{length: 4 * ms, subscribers: 1, tries: tries}
		yields, _ = y.release(&now, subscriberCount{counted: 2}, 0)
		require.Equal(t, 4*ms, yields)
		require.Equal(t, 7, y.tries)
	}
}

func TestYielding_WithoutReceiversNothingBegins(t *testing.T) {
	now := time.Unix(1000, 0)
	var y yieldPolicy
	for range 3 {
		yields, idle := y.release(&now, alone, 0)
		require.Zero(t, yields)
		require.False(t, idle)
		require.Equal(t, yieldPolicy{least: ms}, y)
	}
	y = yieldPolicy{otherHeld: true, exhausted: true}
	yields, _ := y.release(&now, alone, 0)
	require.Zero(t, yields)
	require.False(t, y.exhausted, "another client was seen")
}

// The client that has had the lock asks later than those that have waited longer. With each message
// one of them less has.
func TestYielding_WhoeverHasWaitedLongestAsksFirst(t *testing.T) {
	for _, h := range []subscriberCount{{counted: 6}, {counted: 8, idle: 2}, {counted: 6, own: true}} {
		var y yieldPolicy
		left, own := y.noteWake()
		require.Zero(t, left, "it has not had the lock")
		require.False(t, own)
		y.noteRelease(time.Unix(1000, 0), h, ms)
		if h.own {
			left, own = y.noteWake()
			require.Equal(t, 30*ms, left)
			require.True(t, own)
			require.False(t, y.otherHeld)
		}
		var waits []time.Duration
		for range 8 {
			left, own = y.noteWake()
			waits = append(waits, left)
			require.False(t, own)
			require.True(t, y.otherHeld)
		}
		first := time.Duration(0)
		if h.idle > 0 {
			first = ms // one that is taken for idle may have waited longer
		}
		require.Equal(t, []time.Duration{30 * ms, 30 * ms, 14 * ms, 6 * ms, 2 * ms, first, 0, 0}, waits)
	}
	var far yieldPolicy
	far.noteRelease(time.Unix(1000, 0), subscriberCount{counted: 6}, time.Second)
	left, _ := far.noteWake()
	require.Equal(t, longestYield, left)
}

// A client that is passed over counts less. After some waits without that it counts one more.
func TestYielding_IdleSubscribersAreFoundAndForgotten(t *testing.T) {
	now := time.Unix(1000, 0)
	nine := subscriberCount{counted: 9}
	var y yieldPolicy
	ahead := func(h subscriberCount) int64 { y.noteRelease(now, h, ms); return y.ahead }
	refused := func(clients ...string) {
		for _, c := range clients {
			y.noteWake()
			y.noteRefused(c)
		}
	}
	require.EqualValues(t, 9, ahead(nine))
	refused("a", "b")
	require.EqualValues(t, 7, y.ahead, "nobody was seen twice")
	y.noteRefused("b")
	require.EqualValues(t, 7, y.ahead, "b may still have the lock")
	refused("a")
	require.Negative(t, y.ahead, "a has passed it over")
	left, _ := y.noteWake()
	require.Zero(t, left)

	require.EqualValues(t, 3, ahead(nine), "the turns that were taken")
	for range calmWaits - 1 {
		require.EqualValues(t, 3, ahead(nine))
	}
	require.EqualValues(t, 4, ahead(nine), "one of the idle ones may wait by now")
	require.EqualValues(t, 6, ahead(subscriberCount{counted: 11}), "new ones may wait")
	require.EqualValues(t, 6, ahead(nine), "and those that went were idle")
	require.EqualValues(t, 2, ahead(subscriberCount{counted: 2}))
	require.EqualValues(t, 9, ahead(nine))

	for i := range 100 {
		refused(strconv.Itoa(i))
	}
	require.LessOrEqual(t, len(y.holders), 16, "it remembers so many clients")
}

// A waiter needs a message and a command.
func TestYielding_TheShortestYieldIsTwoRoundTripsWithinBounds(t *testing.T) {
	for roundTrip, least := range map[time.Duration]time.Duration{
		0: ms, 400 * time.Microsecond: ms, 3 * ms: 6 * ms, time.Second: 12500 * time.Microsecond,
	} {
		now := time.Unix(1000, 0)
		var y yieldPolicy
		yields, _ := y.release(&now, clustered, roundTrip)
		require.Equal(t, least, yields)
		require.Equal(t, 150*least, y.nextProbe.Sub(now))
	}
}

func TestYielding_EachFourthProbeIsLonger(t *testing.T) {
	for least, lengths := range map[time.Duration][4]time.Duration{
		ms:                       {ms, 4 * ms, 16 * ms, 100 * ms},
		12500 * time.Microsecond: {12500 * time.Microsecond, 50 * ms, 100 * ms, 100 * ms},
	} {
		var y yieldPolicy
		for i := 1; i <= 128; i++ {
			want := lengths[0]
			for n, each := range []int{4, 16, 64} {
				if i%each == 0 {
					want = lengths[n+1]
				}
			}
			require.Equal(t, want, y.probe(least), "probe %d", i)
		}
	}
}
