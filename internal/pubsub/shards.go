package pubsub

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// SentTwice is the text of a message to a sharded channel whose sender publishes to the classic
// channel of that name too. A hub listens to both, and ignores this one. A client of Redisson reads
// it as the number 0.
const SentTwice = "00"

// shards listens to the sharded channels of a cluster whose names are those of channels of its hub,
// because Redisson publishes nowhere else. It has a hub of sharded channels for each node that has
// some, and so one connection. A channel lives on the node that has its slot. shards looks once a
// second whether a slot has moved. Until it has noticed that, the waiters poll.
//
// Only the goroutine of run uses the fields.
type shards struct {
	hub   *Hub
	nodes map[node.Node]*nodeHub
	subs  map[string]shardSub // by the name of the channel
}

type nodeHub struct {
	*Hub
	unusedSince time.Time // when an update found no channel; zero: there are some
}

type shardSub struct {
	node          node.Node
	sub           *Subscription
	everConfirmed *atomic.Bool // the server has confirmed the channel, on this node or on one before
	lost          int          // so many updates found that it is not confirmed any more
}

const (
	// lookAgain is how many updates in a row look at the topology because a channel was lost.
	lookAgain = 5

	// shardPause is the time between two updates.
	shardPause = time.Second
)

func newShards(h *Hub) *shards {
	return &shards{hub: h, nodes: map[node.Node]*nodeHub{}, subs: map[string]shardSub{}}
}

// run subscribes where the hub has channels, until the hub closes. It subscribes to new channels
// immediately, and looks at all of them in each update.
func (s *shards) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for idle := false; ; {
		select {
		case <-s.hub.shardsWake:
			s.subscribe(s.hub.takeNewNames())
			if idle {
				timer.Reset(shardPause)
				idle = false
			}
		case <-timer.C:
			idle = s.update() == 0
			switch {
			case !idle:
				timer.Reset(shardPause)
			case len(s.nodes) > 0:
				timer.Reset(s.hub.cfg.idle)
			}
		case <-s.hub.ctx.Done():
			s.close()
			return
		}
	}
}

// close closes all hubs at once, because one of them may have to wait for go-redis.
func (s *shards) close() {
	var all sync.WaitGroup
	for _, h := range s.nodes {
		all.Go(h.Close)
	}
	all.Wait()
}

// update subscribes to channels whose slot has moved, and leaves those that the hub has forgotten.
// It returns how many channels the hub has.
func (s *shards) update() int {
	wanted := s.hub.shardedNames()
	s.lookAtTopology()
	for name, old := range s.subs {
		if _, still := wanted[name]; !still {
			old.sub.Close()
			delete(s.subs, name)
		}
	}
	s.subscribe(slices.Collect(maps.Keys(wanted)))
	s.closeUnused()
	return len(wanted)
}

// subscribe subscribes to channels on the nodes that have their slots now.
func (s *shards) subscribe(names []string) {
	ctx, cancel := context.WithTimeout(s.hub.ctx, s.hub.cfg.dial)
	defer cancel()
	for _, name := range names {
		var on node.Node
		err := recoverPanic(func() (err error) {
			on, err = s.hub.cfg.Shard(ctx, name)
			return err
		})
		if old := s.subs[name]; err == nil && old.node != on {
			if old.sub != nil {
				old.sub.Close()
			}
			s.subs[name] = s.listen(name, on, old)
		}
	}
}

// closeUnused closes the hubs that have had no channels for long enough: the node may have left the
// cluster.
func (s *shards) closeUnused() {
	used := map[node.Node]bool{}
	for _, c := range s.subs {
		used[c.node] = true
	}
	now := time.Now()
	for on, h := range s.nodes {
		switch {
		case used[on]:
			h.unusedSince = time.Time{}
		case h.unusedSince.IsZero():
			h.unusedSince = now
		case now.Sub(h.unusedSince) >= s.hub.cfg.idle:
			delete(s.nodes, on)
			s.hub.done.Go(h.Close)
		}
	}
}

// listen subscribes to a channel of a node, after old on another node.
func (s *shards) listen(name string, on node.Node, old shardSub) shardSub {
	everConfirmed := old.everConfirmed
	if everConfirmed == nil {
		everConfirmed = new(atomic.Bool)
	}
	sub := s.nodeHub(on).Listen(name, func(text string) { s.hub.onShardMessage(name, text) }, func() {
		everConfirmed.Store(true)
		s.hub.onShardGap(name)
	})
	if sub.Live() { // from an earlier wait, so nothing is confirmed; a message may have come just before
		everConfirmed.Store(true)
		s.hub.onShardGap(name)
	}
	return shardSub{on, sub, everConfirmed, old.lost}
}

// lookAtTopology learns the nodes anew if a channel was lost, because its slot may have moved. A
// channel that was never confirmed says nothing: the server may refuse it.
func (s *shards) lookAtTopology() {
	look := false
	for name, c := range s.subs {
		switch {
		case c.sub.Live():
			c.lost = 0
		case c.everConfirmed.Load() && c.lost < lookAgain:
			c.lost++
			look = true
		}
		s.subs[name] = c
	}
	if look {
		s.hub.cfg.OnTopologyDoubt(s.hub.ctx)
	}
}

// nodeHub returns the hub for the sharded channels of a node.
func (s *shards) nodeHub(on node.Node) *nodeHub {
	h := s.nodes[on]
	if h == nil {
		// Redis before 7 refuses, and so may the ACL. Then the waiters poll as long as only
		// Redisson publishes.
		h = &nodeHub{Hub: New(Config{Redis: on, sharded: true, timings: s.hub.cfg.timings})}
		s.nodes[on] = h
	}
	return h
}

// shardedNames returns the channels of the hub to which somebody may publish as sharded channels
// only.
func (h *Hub) shardedNames() map[string]struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make(map[string]struct{}, len(h.state.channels))
	for name := range h.state.channels {
		if h.isSharded(name) {
			names[name] = struct{}{}
		}
	}
	return names
}

// isSharded reports whether somebody may publish to the sharded channel of a name only.
func (h *Hub) isSharded(name string) bool {
	return h.cfg.Shard != nil && (h.cfg.IsSharded == nil || h.cfg.IsSharded(name))
}

// takeNewNames returns the sharded channels that came since the last call.
func (h *Hub) takeNewNames() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := h.newNames
	h.newNames = nil
	return names
}

// onShardMessage wakes the waiters of a channel, as a message to the classic channel does.
func (h *Hub) onShardMessage(name, text string) {
	if text == SentTwice {
		return
	}
	for _, l := range h.wakeChannel(name) {
		l.onMessage(text)
	}
}

// onShardGap is for a sharded channel that is confirmed, first or anew, because messages may have
// been lost before. The classic channel of that name may be refused, so nothing else says so.
func (h *Hub) onShardGap(name string) {
	for _, l := range h.wakeChannel(name) {
		l.onGap()
	}
}

// wakeChannel wakes the waiters of a channel, and returns its listeners.
func (h *Hub) wakeChannel(name string) []*Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.state.channels[name]
	if c == nil {
		return nil
	}
	c.wake()
	return c.listeners()
}
