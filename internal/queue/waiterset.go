package queue

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wake"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// SendHeartbeats sends the heartbeats of waiters of one slot. It returns an answer for each, in
// their order.
type SendHeartbeats[B any] func(ctx context.Context, rdb lua.Redis, batch []B) ([]lua.HeartbeatReply, error)

// WaiterSet is the waiter set of a client for all locks of one kind. B is what a heartbeat sends
// for one waiter.
type WaiterSet[B any] struct {
	session *session.Session
	kind    session.LeaseKind
	channel string
	send    SendHeartbeats[B]

	mu      sync.Mutex
	waiters map[string]*waiter[B] // by acquisition
	ranks   ranks[B]
	subRefs int                // how many of them listen for messages
	sub     *wake.Subscription // nil while none listens
}

// NewWaiterSet makes the waiter set of one kind. channel is the client's own channel, on which
// messages about its waiters arrive.
func NewWaiterSet[B any](s *session.Session, kind session.LeaseKind, channel string, beats SendHeartbeats[B]) *WaiterSet[B] {
	d := &WaiterSet[B]{session: s, kind: kind, channel: channel, send: beats, waiters: make(map[string]*waiter[B]), ranks: make(ranks[B])}
	s.SetRenewer(kind, d.renew)
	return d
}

// Len returns the number of waiters.
func (d *WaiterSet[B]) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiters)
}

func (d *WaiterSet[B]) find(acquisition string) *waiter[B] {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiters[acquisition]
}

// onMessage handles a message, which is the id of an acquisition. It is a hint that the waiter with
// this id was granted or removed. Anybody may have sent it, at any time.
func (d *WaiterSet[B]) onMessage(acquisition string) {
	if w := d.find(acquisition); w != nil {
		w.hint()
	}
}

// onGap is called when messages may have been lost. Heartbeats then find out what the messages
// said, for a hundred waiters in one command.
func (d *WaiterSet[B]) onGap() { d.session.RenewNow(d.kind) }

// acquireSub subscribes for another waiter.
func (d *WaiterSet[B]) acquireSub() *wake.Subscription {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.subRefs++
	if d.sub == nil {
		d.sub = d.session.Wakes.Listen(d.channel, d.onMessage, d.onGap)
	}
	return d.sub
}

// releaseSub ends what listen began. The last waiter closes the subscription, but the channel stays
// subscribed for a while.
func (d *WaiterSet[B]) releaseSub() {
	d.mu.Lock()
	d.subRefs--
	var ear *wake.Subscription
	if d.subRefs == 0 {
		ear, d.sub = d.sub, nil
	}
	d.mu.Unlock()
	if ear != nil {
		ear.Close()
	}
}

// isFirst reports whether this waiter is the first of the client's waiters in its queue.
func (d *WaiterSet[B]) isFirst(w *waiter[B]) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ranks.first(w.spec.Key) == w
}

// renew sends heartbeats for the watchdog. It sends none for a waiter that has left meanwhile, and
// counts that waiter as answered.
func (d *WaiterSet[B]) renew(ctx context.Context, rdb lua.Redis, requests []watchdog.Renewal) ([]watchdog.Result, error) {
	answers := make([]watchdog.Result, len(requests))
	waiters := make([]*waiter[B], 0, len(requests))
	places := make([]int, 0, len(requests))
	batch := make([]B, 0, len(requests))
	for i, r := range requests {
		answers[i] = watchdog.Held
		if w := d.find(r.ID); w != nil {
			waiters, places, batch = append(waiters, w), append(places, i), append(batch, w.spec.HeartbeatArgs)
		}
	}
	if len(batch) == 0 {
		return answers, nil
	}
	sent := time.Now()
	replies, err := d.send(ctx, rdb, batch)
	if err != nil {
		return nil, err
	}
	for i, r := range replies {
		answers[places[i]] = waiters[i].apply(r, sent)
	}
	return answers, nil
}
