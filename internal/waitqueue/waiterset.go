package waitqueue

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// SendHeartbeats sends the heartbeats of waiters of one slot in one command. With take, they extend
// grants to the whole lease. It blocks until go-redis returns, and returns an answer for each
// waiter, in the order of batch.
type SendHeartbeats[B any] func(ctx context.Context, rdb lua.Redis, batch []B, take bool) ([]lua.HeartbeatReply, error)

// WaiterSet has all waiters of a client in Redis queues of one kind. B is what a heartbeat sends
// for one waiter.
type WaiterSet[B any] struct {
	session *session.Session
	kind    session.LeaseKind
	channel string
	send    SendHeartbeats[B]

	mu      sync.Mutex
	waiters map[string]*waiter[B] // by acquisition id
	ranks   ranks[B]
	subs    map[string]*sharedSub // by channel
	gaps    int                   // counts the gaps of all subs
}

// sharedSub is a subscription of several waiters.
type sharedSub struct {
	*pubsub.Subscription
	refs int // how many waiters use it
	gap  int // the number of its last gap; 0: it had none
}

// NewWaiterSet makes the waiter set of one kind. Messages for its waiters arrive on channel, which
// belongs to the client.
func NewWaiterSet[B any](s *session.Session, kind session.LeaseKind, channel string, send SendHeartbeats[B]) *WaiterSet[B] {
	d := &WaiterSet[B]{session: s, kind: kind, channel: channel, send: send, waiters: make(map[string]*waiter[B]), ranks: make(ranks[B]), subs: make(map[string]*sharedSub)}
	s.SetRenewer(kind, d.renew)
	return d
}

// Len returns the number of waiters.
func (s *WaiterSet[B]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiters)
}

func (s *WaiterSet[B]) find(acquisition string) *waiter[B] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiters[acquisition]
}

// onMessage handles a message, whose text is the id of an acquisition. It is a hint that the waiter
// with this id was granted or removed. Anybody may have sent it, at any time.
func (s *WaiterSet[B]) onMessage(acquisition string) {
	if w := s.find(acquisition); w != nil {
		w.hint()
	}
}

// listenFreed listens for messages that something is free, from those who do not know the queue,
// such as a client of Redisson. There is one subscription for all waiters of the client in a queue.
// It ends with the last of them, but the client stays subscribed to the channel for a while.
// listenFreed returns nil if there is no such channel.
func (s *WaiterSet[B]) listenFreed(spec Spec[B]) *pubsub.Subscription {
	if spec.Channel == "" {
		return nil
	}
	freed := func() { s.onFreed(spec.Key) }
	return s.session.Hub.Listen(spec.Channel, func(string) { freed() }, freed)
}

// onFreed handles a message that somebody without a place in the queue has freed something. Only
// the first waiter of the client asks Redis, and Redis then serves the first waiter of the whole
// queue. That may be a waiter of another client.
func (s *WaiterSet[B]) onFreed(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.ranks.first(key); w != nil && !w.hinted {
		w.hinted, w.freed = true, true
		w.signalLocked()
	}
}

// onGap is called when messages on a channel may have been lost. The watchdog then sends the
// heartbeats of its waiters now, and the answers say what the messages said. See startHeartbeat for
// waiters that the watchdog does not know at this time.
func (s *WaiterSet[B]) onGap(channel string) {
	s.mu.Lock()
	s.gaps++
	if sub := s.subs[channel]; sub != nil {
		sub.gap = s.gaps
	}
	s.mu.Unlock()
	if channel == s.channel {
		s.session.RenewNow(s.kind)
	} else {
		s.session.RenewSlotNow(s.kind, key.Slot(channel)) // only the waiters of one slot have it
	}
}

// hadGap reports whether messages for w may have been lost since it sent its last join or claim.
func (s *WaiterSet[B]) hadGap(w *waiter[B]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, channel := range []string{s.channel, s.channelOf(w)} {
		if sub := s.subs[channel]; sub != nil && sub.gap > w.gaps {
			return true
		}
	}
	return false
}

// channelOf returns the channel on which messages for w come, as far as the client knows.
func (s *WaiterSet[B]) channelOf(w *waiter[B]) string {
	if s.session.NeedsSlotChannel() {
		return key.ClientInSlot(s.session.ID, w.spec.Key)
	}
	return s.channel
}

// acquireSub returns the subscription to a channel, and counts another waiter that uses it.
// releaseSub must follow.
func (s *WaiterSet[B]) acquireSub(channel string) *pubsub.Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subs[channel]
	if sub == nil {
		sub = &sharedSub{Subscription: s.session.Hub.Listen(channel, s.onMessage, func() { s.onGap(channel) })}
		s.subs[channel] = sub
	}
	sub.refs++
	return sub.Subscription
}

// releaseSub ends what acquireSub began. The last waiter closes the subscription, but the client
// stays subscribed to the channel for a while.
func (s *WaiterSet[B]) releaseSub(channel string) {
	s.mu.Lock()
	sub := s.subs[channel]
	sub.refs--
	last := sub.refs == 0
	if last {
		delete(s.subs, channel)
	}
	s.mu.Unlock()
	if last {
		sub.Close()
	}
}

// isFirst reports whether w is the first of the client's waiters in its queue.
func (s *WaiterSet[B]) isFirst(w *waiter[B]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ranks.first(w.spec.Key) == w
}

// Claim sends a heartbeat for one waiter, until it is answered. The heartbeat takes over what the
// waiter was granted. A grant ends soon unless an attempt takes it over. So with call.Share, a lost
// attempt leaves time for another. Each attempt counts trust for itself, from the instant before it
// was sent.
func (s *WaiterSet[B]) Claim(ctx context.Context, call session.Operation, heartbeat B) (session.Answer[lua.HeartbeatReply], error) {
	return session.Do(ctx, s.session, call,
		func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.HeartbeatReply, error) {
			replies, err := s.send(ctx, rdb, []B{heartbeat}, true)
			if err != nil {
				return lua.HeartbeatReply{}, err
			}
			return replies[0], nil
		})
}

// renew sends heartbeats for the watchdog, and blocks until go-redis returns. It sends none for a
// waiter that has stopped meanwhile, and returns Held for it.
func (s *WaiterSet[B]) renew(ctx context.Context, rdb lua.Redis, requests []watchdog.Renewal) ([]watchdog.Result, error) {
	answers := make([]watchdog.Result, len(requests))
	waiters := make([]*waiter[B], 0, len(requests))
	places := make([]int, 0, len(requests))
	batch := make([]B, 0, len(requests))
	for i, r := range requests {
		answers[i] = watchdog.Held
		if w := s.find(r.ID); w != nil {
			waiters, places, batch = append(waiters, w), append(places, i), append(batch, w.spec.HeartbeatArgs)
		}
	}
	if len(batch) == 0 {
		return answers, nil
	}
	sent := time.Now()
	replies, err := s.send(ctx, rdb, batch, false)
	if err != nil {
		return nil, err
	}
	for i, r := range replies {
		answers[places[i]] = waiters[i].apply(r, sent)
	}
	return answers, nil
}
