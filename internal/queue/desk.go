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

// Beats sends the heartbeats of waiters of one slot, and brings an answer for
// each, in their order.
type Beats[B any] func(ctx context.Context, rdb lua.Redis, batch []B) ([]lua.BeatReply, error)

// Desk is where the waiters of one client wait, for all locks of one kind. B is
// what a beat of such a waiter is made of.
type Desk[B any] struct {
	session *session.Session
	kind    session.Kind
	channel string
	beats   Beats[B]

	mu      sync.Mutex
	waiters map[string]*waiter[B] // by acquisition
	ranks   ranks[B]
	queued  int                // how many of them need to hear
	ear     *wake.Subscription // nil while none does
}

// NewDesk makes the desk of one kind. channel is the client's own, on which it
// hears of grants.
func NewDesk[B any](s *session.Session, kind session.Kind, channel string, beats Beats[B]) *Desk[B] {
	d := &Desk[B]{session: s, kind: kind, channel: channel, beats: beats, waiters: make(map[string]*waiter[B]), ranks: make(ranks[B])}
	s.Keep(kind, d.renew)
	return d
}

// Len is how many wait.
func (d *Desk[B]) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiters)
}

func (d *Desk[B]) find(acquisition string) *waiter[B] {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiters[acquisition]
}

// hear takes in a message, which is an acquisition: a hint that the waiter which
// becomes it was granted, or removed. Anybody may have sent it, at any time.
func (d *Desk[B]) hear(acquisition string) {
	if w := d.find(acquisition); w != nil {
		w.hint()
	}
}

// missed is called when messages may have been missed. The beats say what was in them,
// for a hundred waiters in one command.
func (d *Desk[B]) missed() { d.session.Hurry(d.kind) }

// listen subscribes for one waiter more.
func (d *Desk[B]) listen() *wake.Subscription {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queued++
	if d.ear == nil {
		d.ear = d.session.Wakes.Listen(d.channel, d.hear, d.missed)
	}
	return d.ear
}

// unlisten ends what listen began. The last one leaves the channel, which lingers
// for a while.
func (d *Desk[B]) unlisten() {
	d.mu.Lock()
	d.queued--
	var ear *wake.Subscription
	if d.queued == 0 {
		ear, d.ear = d.ear, nil
	}
	d.mu.Unlock()
	if ear != nil {
		ear.Close()
	}
}

// isFirst reports whether no other waiter of this client is before this one in the
// same queue.
func (d *Desk[B]) isFirst(w *waiter[B]) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ranks.first(w.spec.Key) == w
}

// renew is the watchdog's way to beat. A waiter that has left meanwhile is not sent, and
// counts as answered.
func (d *Desk[B]) renew(ctx context.Context, rdb lua.Redis, requests []watchdog.Request) ([]watchdog.Answer, error) {
	answers := make([]watchdog.Answer, len(requests))
	waiters := make([]*waiter[B], 0, len(requests))
	places := make([]int, 0, len(requests))
	batch := make([]B, 0, len(requests))
	for i, r := range requests {
		answers[i] = watchdog.Held
		if w := d.find(r.ID); w != nil {
			waiters, places, batch = append(waiters, w), append(places, i), append(batch, w.spec.Beat)
		}
	}
	if len(batch) == 0 {
		return answers, nil
	}
	sent := time.Now()
	replies, err := d.beats(ctx, rdb, batch)
	if err != nil {
		return nil, err
	}
	for i, r := range replies {
		answers[places[i]] = waiters[i].answered(r, sent)
	}
	return answers, nil
}
