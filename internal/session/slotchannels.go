package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lua"
)

// slotChannels is what a client knows about the messages for its waiters in queues. On some managed
// services, a script can only publish to channels in the slot of its keys. The client then listens
// to one more channel for each tag.
type slotChannels struct {
	mu            sync.Mutex
	known, needed bool
	asking        chan struct{} // closed when the probe ends; nil: none runs
}

// AskSlotChannel has the client learn whether messages for its waiters in queues come on
// key.ClientInSlot only. In a cluster, it asks Redis once. It returns a channel that is closed when
// the answer has come, or nil if there is nothing to wait for.
func (s *Session) AskSlotChannel() (answered <-chan struct{}) {
	c := &s.slotChannels
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking == nil && !c.known && s.Cluster() {
		c.asking = make(chan struct{})
		s.Background(s.probeSlotChannels)
	}
	return c.asking
}

// NeedsSlotChannel reports whether messages may come on key.ClientInSlot only, as far as the client
// knows.
func (s *Session) NeedsSlotChannel() bool {
	s.slotChannels.mu.Lock()
	defer s.slotChannels.mu.Unlock()
	return s.slotChannels.needed
}

// probeSlotChannels publishes a message that has no meaning to the channel of this client, from a
// script in another slot. It does so until Redis answers, or until the client closes.
func (s *Session) probeSlotChannels(ctx context.Context) {
	const first, most = 250 * time.Millisecond, 10 * time.Second
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	var known, refused bool
	for pause := first; !known && !s.IsClosing(); pause = min(2*pause, most) {
		err := s.publish(ctx, key.ClientPrefix+s.ID, "")
		_, code := lua.Classify(err)
		// Redis says TRYAGAIN if the slot of the channel is on another node, as if the slot of a
		// key moved away. If that was the reason, the client listens to more channels than it
		// needs.
		refused = errors.Is(err, pubsub.ErrEchoRefused) || code == "TRYAGAIN"
		known = err == nil || refused
		if !known {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}
	c := &s.slotChannels
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.needed = known, refused
	close(c.asking)
	c.asking = nil
}
