package pubsub

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// SentTwice is the text of a message to a sharded channel whose sender publishes to the classic channel of
// that name too. A hub listens to both, and ignores this one. A client of Redisson reads it as the number 0.
const SentTwice = "00"

// shards listens to the sharded channels of a cluster whose names are those of channels of its hub, because
// Redisson publishes nowhere else. It has a hub of sharded channels for each node that has some, and so
// one connection. A channel lives on the node that has its slot. shards looks once a second whether a slot
// has moved. Until it has noticed that, the waiters poll.
//
// Only the goroutine of run uses the fields.
type shards struct {
	hub   *Hub
	nodes map[*redis.Client]*Hub
	subs  map[string]shardSub // by the name of the channel
}

type shardSub struct {
	node *redis.Client
	sub  *Subscription
}

// run subscribes where the hub has channels, until the hub closes.
func (s *shards) run() {
	const pause = time.Second
	defer func() {
		for _, node := range s.nodes {
			node.Close()
		}
	}()
	for s.hub.ctx.Err() == nil {
		s.update()
		var again <-chan time.Time
		if len(s.subs) > 0 {
			again = time.After(pause)
		}
		select {
		case <-s.hub.shardsWake:
		case <-again:
		case <-s.hub.ctx.Done():
		}
	}
}

// update subscribes to new channels and to those whose slot has moved, and leaves those that the hub has
// forgotten.
func (s *shards) update() {
	ctx, cancel := context.WithTimeout(s.hub.ctx, s.hub.cfg.Dial)
	defer cancel()
	wanted := s.hub.shardedNames()
	for name, old := range s.subs {
		if _, still := wanted[name]; !still {
			old.sub.Close()
			delete(s.subs, name)
		}
	}
	for name := range wanted {
		var node *redis.Client
		err := recoverPanic(func() (err error) {
			node, err = s.hub.cfg.Shard(ctx, name)
			return err
		})
		if old := s.subs[name]; err == nil && old.node != node {
			if old.sub != nil {
				old.sub.Close()
			}
			s.subs[name] = shardSub{node, s.nodeHub(node).Listen(name,
				func(text string) { s.hub.onShardMessage(name, text) }, func() { s.hub.onShardMessage(name, "") })}
		}
	}
}

// nodeHub returns the hub for the sharded channels of a node.
func (s *shards) nodeHub(node *redis.Client) *Hub {
	h := s.nodes[node]
	if h == nil {
		cfg := s.hub.cfg
		// Redis before 7 refuses, and so may the ACL. Then the waiters poll as long as only Redisson publishes.
		h = New(Config{Redis: node, sharded: true, Ping: cfg.Ping, Linger: cfg.Linger, Idle: cfg.Idle, Dial: cfg.Dial, RetryMin: cfg.RetryMin, RetryMax: cfg.RetryMax, Recheck: cfg.Recheck})
		s.nodes[node] = h
	}
	return h
}

// shardedNames returns the channels of the hub to which somebody may publish as sharded channels only.
func (h *Hub) shardedNames() map[string]struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make(map[string]struct{}, len(h.state.channels))
	for name := range h.state.channels {
		if strings.HasPrefix(name, h.cfg.ShardedPrefix) {
			names[name] = struct{}{}
		}
	}
	return names
}

// onShardMessage wakes the waiters of a channel, as a message to the classic channel does.
func (h *Hub) onShardMessage(name, text string) {
	if text == SentTwice {
		return
	}
	h.mu.Lock()
	var listeners []*Subscription
	if c := h.state.channels[name]; c != nil {
		c.wake()
		listeners = c.listeners()
	}
	h.mu.Unlock()
	for _, l := range listeners {
		l.onMessage(text)
	}
}
