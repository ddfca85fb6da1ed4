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

// Beats sends the heartbeats of waiters of one slot. It returns an answer for each, in their order.
type Beats[B any] func(ctx context.Context, rdb lua.Redis, batch []B) ([]lua.BeatReply, error)

// Desk is the waiter set of a client for all locks of one kind. B is what a heartbeat sends for one
// waiter.
type Desk[B any] struct {
	session *session.Session
	kind    session.Kind
	channel string
	beats   Beats[B]

	mu      sync.Mutex
	waiters map[string]*waiter[B] // by acquisition
	ranks   ranks[B]
	queued  int                // how many of them listen for messages
	ear     *wake.Subscription // nil while none listens
}

// NewDesk makes the waiter set of one kind. channel is the client's own channel, on which messages
// about its waiters arrive.
func NewDesk[B any](s *session.Session, kind session.Kind, channel string, beats Beats[B]) *Desk[B] {
	d := &Desk[B]{session: s, kind: kind, channel: channel, beats: beats, waiters: make(map[string]*waiter[B]), ranks: make(ranks[B])}
	s.Keep(kind, d.renew)
	return d
}

// Len returns the number of waiters.
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

// hear handles a message, which is the id of an acquisition. It is a hint that the waiter with this
// id was granted or removed. Anybody may have sent it, at any time.
func (d *Desk[B]) hear(acquisition string) {
	if w := d.find(acquisition); w != nil {
		w.hint()
	}
}

// missed is called when messages may have been lost. Heartbeats then find out what the messages
// said, for a hundred waiters in one command.
func (d *Desk[B]) missed() { d.session.Hurry(d.kind) }

// listen subscribes for another waiter.
func (d *Desk[B]) listen() *wake.Subscription {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queued++
	if d.ear == nil {
		d.ear = d.session.Wakes.Listen(d.channel, d.hear, d.missed)
	}
	return d.ear
}

// unlisten ends what listen began. The last waiter closes the subscription, but the channel stays
// subscribed for a while.
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

// isFirst reports whether this waiter is the first of the client's waiters in its queue.
func (d *Desk[B]) isFirst(w *waiter[B]) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ranks.first(w.spec.Key) == w
}

// renew sends heartbeats for the watchdog. It sends none for a waiter that has left meanwhile, and
// counts that waiter as answered.
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
