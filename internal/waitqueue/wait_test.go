package waitqueue

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// scene is a waiter set with a server for messages. The test answers the heartbeats.
type scene struct {
	*WaiterSet[string]
	v     *redistest.Virtual
	rdb   *redis.Client
	beat  func(id string) lua.HeartbeatReply // nil: queued
	fails error                              // of all heartbeats
	beats []string                           // ids
	woken []event.Result                     // causes
}

var atTheDoor = lua.QueueState{Position: 1, Length: 1, Holder: "x", Remaining: -1}

// withScene runs test, and looks whether anything is left.
func withScene(t *testing.T, test func(t *testing.T, d *scene)) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		d := &scene{v: v, rdb: v.Client()}
		s := session.New(session.Config{Redis: d.rdb, Deployment: node.Deployment{PubSub: node.SubscriberOf(d.rdb)}, Observers: []event.Observer{event.Func(func(_ context.Context, e event.Event) {
			if e.Kind == event.Woken {
				d.woken = append(d.woken, e.Result)
			}
		})}})
		d.WaiterSet = NewWaiterSet(s, session.FairWaiters, "channel", func(_ context.Context, _ lua.Redis, batch []string, _ bool) (replies []lua.HeartbeatReply, err error) {
			for _, id := range batch {
				d.beats = append(d.beats, id)
				r := lua.HeartbeatReply{Status: lua.Queued, QueueState: atTheDoor}
				if d.beat != nil {
					r = d.beat(id)
				}
				replies = append(replies, r)
			}
			return replies, d.fails
		})
		test(t, d)
		require.Zero(t, d.Len())
		require.Empty(t, d.ranks)
		require.Empty(t, d.subs)
		require.Zero(t, s.Watchdog.Len(), "no heartbeat goes on")
		s.BeginClose()
		require.NoError(t, s.FinishClose(t.Context()))
		time.Sleep(15 * time.Second)
	})
}

// visitor is a request whose answers the test gives.
type visitor struct {
	joins  func(n int, id string) (session.Answer[lua.JoinReply], error)
	claims func() (lua.HeartbeatReply, error)
	ticket int64
	tries  []bool
	ids    []string // with which it asked for a place
	claim  []time.Duration
	given  []string
	begun  time.Time
}

func (c *visitor) Spec(id string) Spec[string] {
	return Spec[string]{Key: "door", Heartbeat: 6 * time.Second, Lease: 30 * time.Second, HeartbeatArgs: id}
}

func (c *visitor) Join(_ context.Context, id string, try bool) (session.Answer[lua.JoinReply], error) {
	c.tries, c.ids = append(c.tries, try), append(c.ids, id)
	if c.joins == nil {
		return c.queued(atTheDoor), nil
	}
	return c.joins(len(c.ids), id)
}

func (c *visitor) queued(p lua.QueueState) session.Answer[lua.JoinReply] {
	return session.Answer[lua.JoinReply]{Value: lua.JoinReply{Status: lua.Queued, Ticket: max(c.ticket, 1), QueueState: p}, Sent: time.Now()}
}

func (c *visitor) Claim(context.Context, string) (session.Answer[lua.HeartbeatReply], error) {
	c.claim = append(c.claim, time.Since(c.begun))
	r, err := lua.HeartbeatReply{Status: lua.Queued, QueueState: atTheDoor}, error(nil)
	if c.claims != nil {
		r, err = c.claims()
	}
	return session.Answer[lua.HeartbeatReply]{Value: r, Sent: time.Now()}, err
}

func (c *visitor) Event(kind event.Kind) event.Event     { return event.Event{Kind: kind} }
func (c *visitor) TrustExpired(sent time.Time) bool      { return time.Since(sent) >= trust }
func (c *visitor) CleanUp(id string, _ session.InFlight) { c.given = append(c.given, id) }

// wait waits with a limit, and returns how that ended.
func (c *visitor) wait(t *testing.T, d *scene, limit time.Duration, o WaitOptions) (acquisition.Grant, error) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if o.OnChange == nil {
		o.OnChange = func(string, lua.QueueState, bool) {}
	}
	c.begun = time.Now()
	return d.JoinAndWait(ctx, c, o)
}

func granted(fence int64) session.Answer[lua.JoinReply] {
	return session.Answer[lua.JoinReply]{Value: lua.JoinReply{Status: lua.Granted, Fence: fence}, Sent: time.Now()}
}

// inFlight returns an unanswered attempt.
func inFlight(t *testing.T, s *session.Session) session.InFlight {
	ctx, cancel := context.WithCancel(t.Context())
	a, err := session.Do(ctx, s, session.Operation{AttemptTimeout: time.Second}, func(context.Context, lua.Redis, lua.Time) (int, error) {
		cancel()
		return 0, io.EOF
	})
	require.Error(t, err)
	require.True(t, a.InFlight.Any())
	return a.InFlight
}

// A join that fails ends a try and a wait. If it may have been granted something, that is given up.
func TestAFailedJoinEndsARequest(t *testing.T) {
	for _, unanswered := range []bool{false, true} {
		withScene(t, func(t *testing.T, d *scene) {
			c := &visitor{joins: func(int, string) (a session.Answer[lua.JoinReply], err error) {
				if unanswered {
					a.InFlight = inFlight(t, d.session)
				}
				return a, io.EOF
			}}
			g, ok, err := d.TryJoin(t.Context(), c)
			require.ErrorIs(t, err, io.EOF)
			require.False(t, ok)
			require.Empty(t, g.ID)
			_, err = c.wait(t, d, time.Minute, WaitOptions{})
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, []bool{true, false}, c.tries)
			if unanswered {
				require.Equal(t, c.ids, c.given)
			} else {
				require.Empty(t, c.given)
			}
		})
	}
}

// A question that fails ends a try and a wait, and what the id may have is given up.
func TestAFailedAttemptEndsARequest(t *testing.T) {
	withScene(t, func(t *testing.T, d *scene) {
		late := func(int, string) (session.Answer[lua.JoinReply], error) {
			a := granted(1)
			time.Sleep(trust)
			return a, nil
		}
		c := &visitor{joins: late, claims: func() (lua.HeartbeatReply, error) { return lua.HeartbeatReply{}, io.EOF }}
		_, ok, err := d.TryJoin(t.Context(), c)
		require.ErrorIs(t, err, io.EOF)
		require.False(t, ok)
		_, err = c.wait(t, d, time.Minute, WaitOptions{})
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, c.ids, c.given)
		require.Len(t, c.claim, 2)
	})
}

// A grant has the id, the fence and the attempts in flight of its join, with or without a wait.
func TestAGrantIsThatOfItsJoin(t *testing.T) {
	withScene(t, func(t *testing.T, d *scene) {
		c := &visitor{joins: func(int, string) (session.Answer[lua.JoinReply], error) {
			a := granted(7)
			a.InFlight = inFlight(t, d.session)
			return a, nil
		}}
		g, ok, err := d.TryJoin(t.Context(), c)
		require.NoError(t, err)
		require.True(t, ok)
		require.EqualValues(t, 7, g.Fence)
		require.True(t, g.InFlight.Any())
		require.Equal(t, c.ids[0], g.ID)
		g, err = c.wait(t, d, time.Minute, WaitOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 7, g.Fence)
		require.True(t, g.InFlight.Any())
		require.Equal(t, c.ids[1], g.ID)
		require.Equal(t, time.Now(), g.Sent)
		require.Empty(t, c.given)
		require.Empty(t, c.claim)
	})
}

// A waiter that has lost its place, or whose window is over, joins again under a fresh id. It says
// once that it queues again.
func TestAWaiterThatLostItsPlaceJoinsAgain(t *testing.T) {
	withScene(t, func(t *testing.T, d *scene) {
		c := &visitor{}
		c.joins = func(n int, _ string) (session.Answer[lua.JoinReply], error) {
			if n == 2 {
				return session.Answer[lua.JoinReply]{}, session.ErrWindowExpired
			}
			return c.queued(atTheDoor), nil
		}
		d.beat = func(id string) lua.HeartbeatReply {
			if id == c.ids[0] {
				return lua.HeartbeatReply{Status: lua.Gone}
			}
			return lua.HeartbeatReply{Status: lua.Queued, QueueState: lua.QueueState{Position: 1, Length: len(d.beats), Holder: "x", Remaining: -1}}
		}
		var requeued []bool
		_, err := c.wait(t, d, 9*time.Second, WaitOptions{OnChange: func(_ string, _ lua.QueueState, again bool) { requeued = append(requeued, again) }})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, c.ids, 3)
		require.Equal(t, []string{c.ids[0], c.ids[2]}, c.given)
		require.Greater(t, len(requeued), 3)
		require.Equal(t, []bool{false, true, false}, requeued[:3])
		require.NotContains(t, requeued[2:], true)
	})
}

// Heartbeats say that an operator removed the waiter, or that the limit is too low now.
func TestAHeartbeatEndsAWait(t *testing.T) {
	for status, want := range map[lua.Status]error{lua.Removed: ErrRemoved, lua.OverLimit: &LimitError{Limit: 3}} {
		withScene(t, func(t *testing.T, d *scene) {
			d.beat = func(string) lua.HeartbeatReply {
				return lua.HeartbeatReply{Status: status, QueueState: lua.QueueState{Limit: 3}}
			}
			c := &visitor{}
			_, err := c.wait(t, d, time.Minute, WaitOptions{})
			require.Equal(t, want, err)
			require.LessOrEqual(t, time.Since(c.begun), 2*time.Second, "the first heartbeat")
			require.Equal(t, c.ids, c.given)
			require.Len(t, d.beats, 1)
		})
	}
	require.EqualError(t, &LimitError{Limit: 3}, "the limit is 3")
}

// A wait ends when its user ends it, when its context ends, or when the client closes. A warning
// does not end it.
func TestAWaitIsEndedFromOutside(t *testing.T) {
	withScene(t, func(t *testing.T, d *scene) {
		interrupt, asked, warned := make(chan struct{}, 1), 0, 0
		time.AfterFunc(time.Second, func() { interrupt <- struct{}{} })
		time.AfterFunc(3*time.Second, func() { interrupt <- struct{}{} })
		c := &visitor{}
		_, err := c.wait(t, d, time.Minute, WaitOptions{
			Interrupt: interrupt, EndsWait: func() bool { asked++; return asked == 2 },
			WarnTimer: time.After(time.Second / 2), Warn: func() { warned++ },
		})
		require.Equal(t, ErrInterrupted, err)
		require.Equal(t, 3*time.Second, time.Since(c.begun))
		require.Equal(t, 1, warned)
		require.Equal(t, []time.Duration{0}, c.claim, "only once it listened")
		require.Equal(t, c.ids, c.given)
		_, err = c.wait(t, d, time.Second, WaitOptions{})
		require.Equal(t, context.DeadlineExceeded, err)
		time.AfterFunc(time.Second, func() { d.session.BeginClose() })
		_, err = c.wait(t, d, time.Minute, WaitOptions{})
		require.Equal(t, context.Canceled, err)
		require.Equal(t, time.Second, time.Since(c.begun))
		require.Equal(t, c.ids, c.given)
	})
}

// A wait callback may close the client. The client then gives up once what the request has.
func TestAWaitCallbackMayCloseTheClient(t *testing.T) {
	withScene(t, func(t *testing.T, d *scene) {
		c := &visitor{}
		c.joins = func(int, string) (session.Answer[lua.JoinReply], error) {
			a := c.queued(atTheDoor)
			a.InFlight = inFlight(t, d.session)
			return a, nil
		}
		require.True(t, d.session.BeginRequest())
		notices := 0
		_, err := c.wait(t, d, time.Minute, WaitOptions{OnChange: func(string, lua.QueueState, bool) {
			notices++
			d.session.BeginClose()
			require.NoError(t, d.session.FinishClose(context.Background()))
		}})
		d.session.EndRequest()
		require.Equal(t, context.Canceled, err)
		require.Equal(t, c.ids, c.given)
		require.Equal(t, 1, notices)
	})
}

// A waiter is notified of each change of its place, and of nothing else. An answer that was sent
// before the last one changes nothing.
func TestACallbackNotifiesOfAChange(t *testing.T) {
	places := []lua.QueueState{
		{Position: 3, Length: 3, Holder: "x", Remaining: -1}, {Position: 2, Length: 3, Holder: "x", Remaining: -1},
		{Position: 2, Length: 4, Holder: "x", Remaining: -1}, {Position: 2, Length: 4, Holder: "y", Remaining: -1},
		{Position: 2, Length: 4, Holder: "y", Remaining: time.Hour},
	}
	withScene(t, func(t *testing.T, d *scene) {
		d.beat = func(string) lua.HeartbeatReply {
			return lua.HeartbeatReply{Status: lua.Queued, QueueState: places[min(len(d.beats), len(places)-1)]}
		}
		c := &visitor{}
		c.joins = func(int, string) (session.Answer[lua.JoinReply], error) { return c.queued(places[0]), nil }
		var notified []lua.QueueState
		_, err := c.wait(t, d, 19*time.Second, WaitOptions{OnChange: func(_ string, p lua.QueueState, _ bool) {
			notified = append(notified, p)
			w := d.find(c.ids[0])
			require.Equal(t, watchdog.Renewed, w.apply(lua.HeartbeatReply{Status: lua.Queued, QueueState: atTheDoor}, w.sent.Add(-1)))
			require.Equal(t, watchdog.Unknown, w.apply(lua.HeartbeatReply{Status: lua.Busy}, time.Now()))
		}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, places[:4], notified)
	})
}

// The first waiter of a client asks when the lease of the holder ends, if its next heartbeat would
// come too late. All others learn of their grant by heartbeats.
func TestTheFirstWaiterAsksAtTheEndOfALease(t *testing.T) {
	const end = time.Millisecond
	for name, c := range map[string]struct {
		remaining time.Duration
		asks      []time.Duration // the first one
	}{
		"soon":        {time.Second, []time.Duration{time.Second + end}},
		"now":         {0, []time.Duration{end}},
		"with a beat": {6 * time.Second, []time.Duration{6*time.Second + end}},
		"late":        {6*time.Second + 1, []time.Duration{}},
		"never":       {-1, []time.Duration{}},
	} {
		t.Run(name, func(t *testing.T) {
			withScene(t, func(t *testing.T, d *scene) {
				p := atTheDoor
				p.Remaining = c.remaining
				begun := time.Now()
				d.beat = func(string) lua.HeartbeatReply {
					r := lua.HeartbeatReply{Status: lua.Queued, QueueState: p}
					if r.QueueState.Remaining > 0 && len(c.asks) > 0 {
						r.QueueState.Remaining = max(0, r.QueueState.Remaining-time.Since(begun))
					}
					return r
				}
				var all [2]*visitor
				ended := make(chan error, 2)
				for i := range all {
					v := &visitor{ticket: int64(1 + i)}
					v.joins = func(int, string) (session.Answer[lua.JoinReply], error) { return v.queued(p), nil }
					all[i] = v
					go func() {
						limit := 7*time.Second - time.Duration(i)*500*time.Millisecond // it never becomes the first
						_, err := v.wait(t, d, limit, WaitOptions{})
						ended <- err
					}()
					synctest.Wait()
				}
				require.ErrorIs(t, <-ended, context.DeadlineExceeded)
				require.ErrorIs(t, <-ended, context.DeadlineExceeded)
				claim := func(v *visitor) []time.Duration { // without that after the subscription
					return slices.DeleteFunc(slices.Clone(v.claim), func(at time.Duration) bool { return at < end })
				}
				first := claim(all[0])
				first = first[:min(1, len(first))]
				require.Len(t, first, len(c.asks))
				for i, at := range c.asks { // a heartbeat between the end and then moves it
					require.GreaterOrEqual(t, first[i], at)
					require.LessOrEqual(t, first[i], at+end)
				}
				require.Empty(t, claim(all[1]), "it came later, and left earlier")
			})
		})
	}
}

// A message has its waiter ask at once. After false ones it waits a little. Messages for others,
// and nonsense, do nothing.
func TestAMessageHasItsWaiterAsk(t *testing.T) {
	withScene(t, func(t *testing.T, d *scene) {
		c := &visitor{}
		publish := func(id string) {
			require.NoError(t, d.rdb.Publish(context.Background(), "channel", id).Err())
		}
		const first = 500 * time.Millisecond
		time.AfterFunc(first, func() { publish(c.ids[0]) })
		time.AfterFunc(first/2, func() { publish("nobody:1") })
		time.AfterFunc(20*time.Second, func() {
			c.claims = func() (lua.HeartbeatReply, error) { return lua.HeartbeatReply{Status: lua.Granted, Fence: 9}, nil }
			publish(c.ids[0])
		})
		g, err := c.wait(t, d, time.Minute, WaitOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 9, g.Fence)
		require.Equal(t, c.ids[0], g.ID)
		require.Empty(t, c.given)
		at := slices.DeleteFunc(c.claim, func(at time.Duration) bool { return at < first/4 })
		require.Equal(t, []time.Duration{first, 20 * time.Second}, at)
	})
}

// A heartbeat that says "granted" is a hint. The waiter asks, and takes the grant.
func TestAHeartbeatThatSaysGrantedIsAHint(t *testing.T) {
	withScene(t, func(t *testing.T, d *scene) {
		d.beat = func(string) lua.HeartbeatReply { return lua.HeartbeatReply{Status: lua.Granted} }
		c := &visitor{}
		c.claims = func() (lua.HeartbeatReply, error) {
			if time.Since(c.begun) < time.Second {
				return lua.HeartbeatReply{Status: lua.Queued, QueueState: atTheDoor}, nil
			}
			require.Empty(t, d.ranks, "it does not wait for the end of a lease")
			return lua.HeartbeatReply{Status: lua.Granted, Fence: 3}, nil
		}
		g, err := c.wait(t, d, time.Minute, WaitOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 3, g.Fence)
		require.LessOrEqual(t, time.Since(c.begun), 2*time.Second, "the first heartbeat")
	})
}

// A waiter whose heartbeats are not answered in time asks by itself, and then has heartbeats again.
func TestAWaiterWithoutHeartbeatsAsks(t *testing.T) {
	withScene(t, func(t *testing.T, d *scene) {
		d.fails = errors.New("no answer")
		c := &visitor{}
		c.claims = func() (lua.HeartbeatReply, error) {
			if time.Since(c.begun) > 3*time.Second {
				d.fails = nil
			}
			return lua.HeartbeatReply{Status: lua.Queued, QueueState: atTheDoor}, nil
		}
		_, err := c.wait(t, d, 30*time.Second, WaitOptions{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		asked := slices.DeleteFunc(c.claim, func(at time.Duration) bool { return at < time.Second })
		require.Len(t, asked, 1)
		require.LessOrEqual(t, asked[0], 6*time.Second)
		require.Greater(t, asked[0], 4*time.Second)
		require.Nil(t, d.fails)
	})
}

// After a gap in the messages, all waiters send their heartbeats at once. They share one
// subscription.
func TestAGapHasAllHeartbeatsSent(t *testing.T) {
	withScene(t, func(t *testing.T, d *scene) {
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := new(visitor).wait(t, d, 2*time.Millisecond, WaitOptions{})
				ended <- err
			}()
		}
		time.Sleep(time.Millisecond)
		require.Equal(t, 2, d.Len())
		require.Equal(t, 2, d.subs[d.channel].refs)
		require.Empty(t, d.beats)
		d.onGap(d.channel)
		synctest.Wait()
		require.Len(t, d.beats, 2)
		<-ended
		<-ended
		d.fails = io.EOF // nothing is sent for a waiter that has left
		answers, err := d.renew(t.Context(), nil, []watchdog.Renewal{{ID: "left"}})
		require.NoError(t, err)
		require.Equal(t, []watchdog.Result{watchdog.Held}, answers)
	})
}

// The watchdog does not know a waiter before the answer of its join, nor while it restarts the
// heartbeats. After a gap at such a time, the waiter asks by itself.
func TestAGapBeforeTheHeartbeatsMakesTheWaiterAsk(t *testing.T) {
	queued := lua.HeartbeatReply{Status: lua.Queued, QueueState: atTheDoor}
	for _, at := range []string{"never", "join", "answer", "restart", "claim"} {
		t.Run(at, func(t *testing.T) {
			withScene(t, func(t *testing.T, d *scene) {
				defer d.releaseSub(d.channel)
				d.acquireSub(d.channel) // another waiter listens
				w := d.addWaiter("a", &visitor{})
				defer w.stop()
				gap := func(now string) {
					if now == at {
						d.onGap(d.channel)
					}
				}
				gap("join")
				w.apply(queued, time.Now())
				gap("answer")
				w.startHeartbeat(time.Now())
				if at == "claim" || at == "restart" {
					require.False(t, w.snapshot().hinted)
					w.takeHint()
					gap("claim")
					w.lease.BeginStop()
					gap("restart")
					w.startHeartbeat(time.Now())
				}
				require.Equal(t, at != "never", w.snapshot().hinted)
			})
		})
	}
}

// A gap of a channel that only the waiters of one slot have does not concern waiters of other
// slots.
func TestAGapInASlotMakesOnlyItsWaitersAsk(t *testing.T) {
	withScene(t, func(t *testing.T, d *scene) {
		other := key.ClientInSlot(d.session.ID, "another door")
		defer d.releaseSub(other)
		d.acquireSub(other)
		w := d.addWaiter("a", &visitor{})
		defer w.stop()
		d.onGap(other)
		w.apply(lua.HeartbeatReply{Status: lua.Queued, QueueState: atTheDoor}, time.Now())
		w.startHeartbeat(time.Now())
		require.False(t, w.snapshot().hinted)
	})
}

// Heartbeats answer each waiter in its place, also beside one that has left. An error is one of
// all.
func TestHeartbeatsAnswerEachWaiter(t *testing.T) {
	withScene(t, func(t *testing.T, d *scene) {
		a, b := d.addWaiter("a", &visitor{}), d.addWaiter("b", &visitor{})
		d.beat = func(id string) lua.HeartbeatReply {
			return lua.HeartbeatReply{Status: map[string]lua.Status{"a": lua.Gone, "b": lua.Queued}[id], QueueState: atTheDoor}
		}
		all := []watchdog.Renewal{{ID: "left"}, {ID: "b"}, {ID: "left too"}, {ID: "a"}}
		answers, err := d.renew(t.Context(), nil, all)
		require.NoError(t, err)
		require.Equal(t, []watchdog.Result{watchdog.Held, watchdog.Renewed, watchdog.Held, watchdog.Gone}, answers)
		require.Equal(t, []string{"b", "a"}, d.beats)
		require.True(t, d.isFirst(b))

		// A place that is gone does not come back by an older answer.
		a.apply(lua.HeartbeatReply{Status: lua.Queued, QueueState: atTheDoor}, time.Now())
		require.Equal(t, lua.Gone, a.snapshot().status)
		b.apply(lua.HeartbeatReply{Status: lua.Removed}, time.Now())
		require.Empty(t, d.ranks)
		d.fails = io.EOF
		answers, err = d.renew(t.Context(), nil, all)
		require.ErrorIs(t, err, io.EOF)
		require.Nil(t, answers)
		a.stop()
		b.stop()
		require.Equal(t, watchdog.Held, b.apply(lua.HeartbeatReply{Status: lua.Queued}, time.Now()))
	})
}

// The first waiter is the one with the lowest ticket, and not the one that joined first here.
func TestTheFirstWaiterHasTheLowestTicket(t *testing.T) {
	withScene(t, func(t *testing.T, d *scene) {
		late, early := &visitor{ticket: 2}, &visitor{ticket: 1}
		ended := make(chan error, 2)
		for _, c := range []*visitor{late, early} {
			go func() {
				_, err := c.wait(t, d, time.Second, WaitOptions{})
				ended <- err
			}()
			synctest.Wait()
		}
		require.True(t, d.isFirst(d.find(early.ids[0])))
		require.False(t, d.isFirst(d.find(late.ids[0])))
		<-ended
		<-ended
	})
}

// A waiter asks after its join, unless the client listened already before that: a message may have
// been missed. It does not wait for the subscription if a message came before the answer of the
// join, and then asks once more when it listens.
func TestAWaiterAsksIfItMayHaveMissedAMessage(t *testing.T) {
	const late, join = 100 * time.Millisecond, 60 * time.Millisecond
	withScene(t, func(t *testing.T, d *scene) {
		d.v.Inject(redistest.Rule{Match: func(cmd []string) bool { return strings.EqualFold(cmd[0], "subscribe") }, Times: 1, Action: redistest.DelayReply(late)})
		var all []*visitor
		ended := make(chan error, 4)
		enter := func(hint bool) *visitor {
			c := &visitor{}
			c.joins = func(_ int, id string) (session.Answer[lua.JoinReply], error) {
				a := c.queued(atTheDoor)
				if hint {
					d.onMessage(id)
				} else {
					time.Sleep(join)
				}
				return a, nil
			}
			all = append(all, c)
			go func() {
				_, err := c.wait(t, d, time.Second, WaitOptions{})
				ended <- err
			}()
			synctest.Wait()
			return c
		}
		first := enter(false) // subscribes when it has joined
		hinted := enter(true)
		time.Sleep(2 * late)
		after := enter(false) // joins while it listens
		for range all {
			require.ErrorIs(t, <-ended, context.DeadlineExceeded)
		}
		require.Len(t, hinted.claim, 2, "at once, and when it listens")
		require.Zero(t, hinted.claim[0])
		require.GreaterOrEqual(t, hinted.claim[1], late)
		require.Len(t, first.claim, 1)
		require.GreaterOrEqual(t, first.claim[0], late)
		require.Empty(t, after.claim)
		synctest.Wait()
		require.Equal(t, []event.Result{event.Message}, d.woken, "the second question of one waiter")
	})
}

// A waiter that was about to join when the client did not listen yet asks, though it listens now.
func TestAWaiterThatJoinedBeforeTheClientListenedAsks(t *testing.T) {
	const late = 100 * time.Millisecond
	withScene(t, func(t *testing.T, d *scene) {
		d.v.Inject(redistest.Rule{Match: func(cmd []string) bool { return strings.EqualFold(cmd[0], "subscribe") }, Times: 1, Action: redistest.DelayReply(late)})
		ended := make(chan error, 2)
		slow := &visitor{}
		slow.joins = func(int, string) (session.Answer[lua.JoinReply], error) {
			a := slow.queued(atTheDoor)
			time.Sleep(2 * late)
			return a, nil
		}
		for _, c := range []*visitor{{}, slow} {
			go func() {
				_, err := c.wait(t, d, time.Second, WaitOptions{})
				ended <- err
			}()
		}
		<-ended
		<-ended
		require.Equal(t, []time.Duration{2 * late}, slow.claim)
	})
}
