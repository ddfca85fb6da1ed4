package pubsub

import (
	"context"
	"strings"
	"sync/atomic"
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
	was  *atomic.Bool // the server has confirmed the channel, on this node or on one before
	lost int          // so many updates found that it is not confirmed any more
}

// lookAgain is how many updates in a row look at the topology because a channel was lost.
const lookAgain = 5

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
	s.lookAtTopology(ctx)
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
			s.subs[name] = s.listen(name, node, old)
		}
	}
}

// listen subscribes to a channel of a node, after old on another node.
func (s *shards) listen(name string, node *redis.Client, old shardSub) shardSub {
	was := old.was
	if was == nil {
		was = new(atomic.Bool)
	}
	sub := s.nodeHub(node).Listen(name, func(text string) { s.hub.onShardMessage(name, text) }, func() {
		was.Store(true)
		s.hub.onShardMessage(name, "")
	})
	return shardSub{node, sub, was, old.lost}
}

// lookAtTopology learns the nodes anew if a channel was lost, because its slot may have moved. A channel that
// was never confirmed says nothing: the server may refuse it.
func (s *shards) lookAtTopology(ctx context.Context) {
	look := false
	for name, c := range s.subs {
		switch {
		case c.sub.Live():
			c.lost = 0
		case c.was.Load() && c.lost < lookAgain:
			c.lost++
			look = true
		}
		s.subs[name] = c
	}
	if look {
		s.hub.cfg.OnDeaf(ctx)
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
