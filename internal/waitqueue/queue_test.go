package waitqueue

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lua"
)

// fakeRequest is a Contender that gets the answers that the test sets.
type fakeRequest struct {
	join, ask func() (lua.Status, time.Time)
	asked     int
	given     []string // ids that were given up
	dead      int      // how many answers say that more expired waiters are to be dropped
	ending    bool     // the lease of the holder is in its last millisecond
}

const trust = time.Second // how long a grant is trusted

func (c *fakeRequest) Spec(string) Spec[string] {
	return Spec[string]{Key: "door", Heartbeat: 5 * time.Second, Lease: 30 * time.Second}
}

func (c *fakeRequest) Join(ctx context.Context, _ string, _ bool) (answer session.Answer[lua.JoinReply], err error) {
	if ctx.Err() != nil {
		return answer, ctx.Err()
	}
	answer.Value = lua.JoinReply{Fence: 7, Ticket: 1, QueueState: lua.QueueState{Position: 1, Length: 1, Holder: "x", Remaining: -1}}
	if c.dead > 0 {
		c.dead--
		answer.Value.Status, answer.Value.QueueState.Remaining, answer.Sent = lua.Busy, 0, time.Now()
		answer.Value.QueueState.Holder = ""
		return answer, nil
	}
	if c.ending {
		answer.Value.QueueState.Remaining = 0
	}
	answer.Value.Status, answer.Sent = c.join()
	return answer, nil
}

func (c *fakeRequest) Claim(context.Context, string) (answer session.Answer[lua.HeartbeatReply], err error) {
	c.asked++
	answer.Value = lua.HeartbeatReply{Fence: 7, QueueState: lua.QueueState{Position: 1, Length: 1, Holder: "x", Remaining: -1}}
	answer.Value.Status, answer.Sent = c.ask()
	return answer, nil
}

func (c *fakeRequest) Event(kind event.Kind) event.Event     { return event.Event{Kind: kind} }
func (c *fakeRequest) TrustExpired(sent time.Time) bool      { return time.Since(sent) >= trust }
func (c *fakeRequest) CleanUp(id string, _ session.InFlight) { c.given = append(c.given, id) }

// contend runs Contend for one request, with a server for messages, until it returns.
func contend(t *testing.T, c *fakeRequest) (g acquisition.Grant) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		rdb := v.Client()
		s := session.New(session.Config{Redis: rdb, Deployment: node.Deployment{PubSub: node.SubscriberOf(rdb)}})
		d := NewWaiterSet(s, session.FairWaiters, "channel", func(_ context.Context, _ lua.Redis, batch []string, _ bool) ([]lua.HeartbeatReply, error) {
			return slices.Repeat([]lua.HeartbeatReply{{Status: lua.Queued}}, len(batch)), nil
		})
		var err error
		g, err = d.JoinAndWait(t.Context(), c, WaitOptions{OnChange: func(string, lua.QueueState, bool) {}})
		require.NoError(t, err)
		require.Zero(t, d.Len())
		require.Empty(t, d.ranks)
		require.Empty(t, c.given)
		s.BeginClose()
		require.NoError(t, s.FinishClose(t.Context()))
		time.Sleep(15 * time.Second)
	})
	return g
}

// in returns an answer that takes so long.
func in(d time.Duration, status lua.Status) func() (lua.Status, time.Time) {
	return func() (lua.Status, time.Time) {
		sent := time.Now()
		time.Sleep(d)
		return status, sent
	}
}

// A grant is trusted from before the command that took it.
func TestTrustCountsFromTheSending(t *testing.T) {
	var sent time.Time
	g := contend(t, &fakeRequest{join: in(0, lua.Queued), ask: func() (lua.Status, time.Time) {
		sent = time.Now()
		return in(trust/2, lua.Granted)()
	}})
	require.Equal(t, sent, g.Sent)
}

// If an answer arrives after its trust was over, the waiter asks again. It does not join again,
// because its id could get a second place.
func TestAGrantThatComesTooLateIsAskedForAgain(t *testing.T) {
	late := true
	ask := func() (lua.Status, time.Time) {
		if late {
			late = false
			return in(trust, lua.Granted)()
		}
		return in(0, lua.Granted)()
	}
	joins := 0
	join := func(status lua.Status, takes time.Duration) func() (lua.Status, time.Time) {
		return func() (lua.Status, time.Time) { joins++; return in(takes, status)() }
	}
	for name, c := range map[string]*fakeRequest{
		"by the join": {join: join(lua.Granted, trust)}, "by the question": {join: join(lua.Queued, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			late, joins, c.ask = true, 0, ask
			contend(t, c)
			require.Equal(t, 2, c.asked)
			require.Equal(t, 1, joins)
		})
	}
}

// Try is refused only if somebody is in the way.
func TestATryIsRefusedBySomebody(t *testing.T) {
	for name, c := range map[string]struct {
		dead               int
		ending             bool
		join               []func() (lua.Status, time.Time)
		ask                func() (lua.Status, time.Time)
		limit              time.Duration
		granted            bool
		joins, asks, given int
	}{
		"granted":                                {join: join(in(0, lua.Granted)), granted: true, joins: 1},
		"refused":                                {join: join(in(0, lua.Busy)), joins: 1},
		"refused in the last instant of a lease": {ending: true, join: join(in(0, lua.Busy), in(0, lua.Granted)), joins: 1},
		"behind many dead":                       {dead: 3, join: join(in(0, lua.Granted)), granted: true, joins: 1},
		"behind many dead, and refused":          {dead: 3, join: join(in(0, lua.Busy)), joins: 1},
		"late, and stands yet":                   {join: join(in(trust, lua.Granted)), ask: in(0, lua.Granted), granted: true, joins: 1, asks: 1},
		"late, and has ended":                    {join: join(in(trust, lua.Granted), in(0, lua.Granted)), ask: in(0, lua.Gone), granted: true, joins: 2, asks: 1},
		"late, has ended, and refused":           {join: join(in(trust, lua.Granted), in(0, lua.Busy)), ask: in(0, lua.Gone), joins: 2, asks: 1},
		"late, and the context ended":            {join: join(in(trust, lua.Granted)), limit: trust / 2, joins: 1, given: 1},
		"late twice, until it ended":             {join: join(in(trust, lua.Granted)), ask: in(trust, lua.Granted), limit: trust + trust/2, joins: 1, asks: 1, given: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := session.New(session.Config{})
				d := NewWaiterSet[string](s, session.FairWaiters, "channel", nil)
				defer func() { require.NoError(t, s.FinishClose(context.Background())) }()
				joins := 0
				one := &fakeRequest{dead: c.dead, ending: c.ending, ask: c.ask, join: func() (lua.Status, time.Time) { joins++; return c.join[joins-1]() }}
				ctx := t.Context()
				if c.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.limit)
					defer cancel()
				}
				g, granted, err := d.TryJoin(ctx, one)
				synctest.Wait()
				if c.limit > 0 {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, c.granted, granted)
				require.Equal(t, c.granted, g.ID != "")
				require.False(t, granted && one.TrustExpired(g.Sent))
				require.Equal(t, []int{c.joins, c.asks, c.given}, []int{joins, one.asked, len(one.given)})
			})
		})
	}
}

func join(answers ...func() (lua.Status, time.Time)) []func() (lua.Status, time.Time) { return answers }

// A hint counts immediately after a quiet time, however many false ones there were before.
func TestAFloodIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w waiter[string]
		for range 100 {
			w.onFalseHint()
		}
		require.True(t, w.hintsFrom.After(time.Now()))
		time.Sleep(3 * time.Second)
		w.onFalseHint()
		require.False(t, w.hintsFrom.After(time.Now()))
	})
}

// A waiter that gave up while its heartbeat was in flight does not become the first of its queue
// again. Nobody would remove it, and the others would never ask at the ends of leases.
func TestALateAnswerToAHeartbeatRevivesNoWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		rdb := v.Client()
		s := session.New(session.Config{Redis: rdb, Deployment: node.Deployment{PubSub: node.SubscriberOf(rdb)}})
		under, answer := make(chan bool, 1), make(chan bool)
		d := NewWaiterSet(s, session.FairWaiters, "channel", func(_ context.Context, _ lua.Redis, batch []string, _ bool) ([]lua.HeartbeatReply, error) {
			under <- true
			<-answer
			return slices.Repeat([]lua.HeartbeatReply{{Status: lua.Queued}}, len(batch)), nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		queued := in(0, lua.Queued)
		c := &fakeRequest{join: queued, ask: queued}
		var err error
		ended := make(chan bool)
		go func() {
			defer close(ended)
			_, err = d.JoinAndWait(ctx, c, WaitOptions{OnChange: func(string, lua.QueueState, bool) {}})
		}()
		<-under
		cancel()
		<-ended
		require.Error(t, err)
		require.Empty(t, d.ranks)
		close(answer)
		synctest.Wait()
		require.Empty(t, d.ranks)
		s.BeginClose()
		require.NoError(t, s.FinishClose(t.Context()))
		time.Sleep(15 * time.Second)
	})
}

// subscribing runs Contend for one request, with a fault in the answer to SUBSCRIBE. It returns
// the time until the request asked. Heartbeats say that it was granted.
func subscribing(t *testing.T, fault redistest.Action) (asked time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		v.Inject(redistest.Rule{Match: func(cmd []string) bool { return strings.EqualFold(cmd[0], "subscribe") }, Times: 1, Action: fault})
		rdb := v.Client()
		s := session.New(session.Config{Redis: rdb, Deployment: node.Deployment{PubSub: node.SubscriberOf(rdb)}})
		d := NewWaiterSet(s, session.FairWaiters, "channel", func(_ context.Context, _ lua.Redis, batch []string, _ bool) ([]lua.HeartbeatReply, error) {
			return slices.Repeat([]lua.HeartbeatReply{{Status: lua.Granted}}, len(batch)), nil
		})
		begun := time.Now()
		c := &fakeRequest{join: in(0, lua.Queued), ask: func() (lua.Status, time.Time) {
			asked = time.Since(begun)
			return lua.Granted, time.Now()
		}}
		_, err := d.JoinAndWait(t.Context(), c, WaitOptions{OnChange: func(string, lua.QueueState, bool) {}})
		require.NoError(t, err)
		require.Equal(t, 1, c.asked)
		s.BeginClose()
		require.NoError(t, s.FinishClose(t.Context()))
		time.Sleep(15 * time.Second)
	})
	return asked
}

// A waiter whose SUBSCRIBE is not answered learns from its first heartbeat that it was granted, and
// then asks. Otherwise the grant would end with the heartbeat.
func TestAnUnansweredSubscriptionKeepsNobodyFromItsGrant(t *testing.T) {
	beat := (&fakeRequest{}).Spec("").Heartbeat / 3
	require.LessOrEqual(t, subscribing(t, redistest.Swallow()), beat)
}

// Without a fault, the waiter asks as soon as it listens, and not before: it would miss a message
// in between.
func TestAWaiterAsksOnceItListens(t *testing.T) {
	const late = 100 * time.Millisecond
	asked := subscribing(t, redistest.DelayReply(late))
	require.GreaterOrEqual(t, asked, late)
	require.Less(t, asked, 2*late)
}

// The first waiter of a client in a queue has the lowest ticket, whoever comes and goes.
func TestTheFirstOfEachQueueIsKnown(t *testing.T) {
	d := &WaiterSet[string]{ranks: make(ranks[string])}
	keys := []string{"a", "b", "c"}
	in := map[*waiter[string]]bool{}
	for range 2000 {
		if rand.N(2) == 0 {
			w := &waiter[string]{spec: Spec[string]{Key: keys[rand.N(3)]}, ticket: rand.Int64()}
			d.ranks.add(w)
			d.ranks.add(w) // twice is fine
			in[w] = true
		}
		for w := range in {
			if rand.N(3) == 0 {
				d.ranks.remove(w)
				d.ranks.remove(w)
				delete(in, w)
			}
			break
		}
		first := map[string]*waiter[string]{}
		for w := range in {
			if f := first[w.spec.Key]; f == nil || w.ticket < f.ticket {
				first[w.spec.Key] = w
			}
		}
		require.Len(t, d.ranks, len(first), "nothing is left of an empty queue")
		for w := range in {
			require.Equal(t, first[w.spec.Key] == w, d.isFirst(w))
		}
	}
}
