package pubsub

import (
	"context"
	"sync"
	"time"
)

// Hub subscribes, for one client, to the channels that somebody waits for, and wakes the waiters.
// Its methods may be called concurrently.
type Hub struct {
	cfg Config

	// commanderWake notifies the commander that there may be something to do. One slot is enough,
	// because the commander checks everything each time.
	commanderWake chan struct{}
	shardsWake    chan struct{} // likewise for shards

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	done   sync.WaitGroup // the goroutines of the hub

	// Only the commander uses these.
	lastDialFailed bool // the last connection could not be made
	backoff        backoff

	mu       sync.Mutex // never held during I/O
	state    hubState
	newNames []string // sharded channels that shards does not know yet
}

// New makes a hub. It does no I/O and starts no goroutine; the first Subscribe
// does. cfg.Redis must not be nil.
func New(cfg Config) *Hub {
	cfg = cfg.withDefaults()
	h := &Hub{cfg: cfg, commanderWake: make(chan struct{}, 1), shardsWake: make(chan struct{}, 1)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.state = newHubState(cfg)
	h.backoff = backoff{least: retryMin, most: cfg.retryMax}
	return h
}

// Subscribe asks for wake-ups by a channel until the subscription is closed. It never blocks and
// never fails; see [Subscription.Ready]. A channel that is already subscribed costs nothing. A new
// one shares its SUBSCRIBE with others that come at the same time. After Close of the hub,
// Subscribe returns a subscription that gets no wake-ups.
func (h *Hub) Subscribe(channel string) *Subscription {
	return h.add(&Subscription{hub: h, wakes: make(chan struct{}, 1)}, channel)
}

// Listen is Subscribe for a channel whose messages have a meaning. It calls onMessage with the text
// of each message, in order. onMessage must not block. As any wake-up, a message may be lost, late
// or doubled. onMessage may still get a message that is under way when the subscription is closed.
//
// missed is called when the channel is confirmed anew, because messages may have been lost before.
// It must not block either. It is not called for the first confirmation, which Ready waits for,
// unless Ready has returned before because there was no connection, or because Redis refused the
// channel. It is called for each confirmation of the sharded channel of that name, because Ready
// does not wait for those.
func (h *Hub) Listen(channel string, onMessage func(payload string), missed func()) *Subscription {
	return h.add(&Subscription{hub: h, wakes: make(chan struct{}, 1), onMessage: onMessage, onGap: missed}, channel)
}

func (h *Hub) add(s *Subscription, channel string) *Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state.closed {
		return s
	}
	if !h.state.started {
		h.state.started = true
		h.done.Go(func() {
			h.keepRunning(h.run, func() time.Duration { return h.disconnected(errExited) })
		})
		if h.cfg.Shard != nil {
			shards := newShards(h)
			h.done.Go(func() {
				h.keepRunning(shards.run, func() time.Duration { return shardPause })
			})
		}
	}
	if h.state.add(channel, s) {
		h.wakeCommander()
		if h.isSharded(channel) {
			h.newNames = append(h.newNames, channel)
			select {
			case h.shardsWake <- struct{}{}:
			default:
			}
		}
	}
	return s
}

// IsSubscribed reports whether a message to the channel would reach this hub now, even if nobody
// waits for it any more.
func (h *Hub) IsSubscribed(channel string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.state.channels[channel]
	return c != nil && (c.state == subscribed || c.state == unsubscribing)
}

// Close ends the connection and the goroutines, and waits for them. It wakes every waiter one last
// time, and no channel is live any more. Close waits for a connection that is being made: go-redis
// may first let its own time-outs run out. Otherwise it returns immediately. Calling it again is
// fine.
func (h *Hub) Close() {
	h.mu.Lock()
	h.state.close()
	h.mu.Unlock()
	h.cancel()
	h.done.Wait()
}

// wakeCommander never blocks.
func (h *Hub) wakeCommander() {
	select {
	case h.commanderWake <- struct{}{}:
	default:
	}
}

// update changes the registry, and wakes the commander if there is something to do.
func (h *Hub) update(change func(r *hubState, now time.Time) (look bool)) {
	h.mu.Lock()
	look := change(&h.state, time.Now())
	h.mu.Unlock()
	if look {
		h.wakeCommander()
	}
}
