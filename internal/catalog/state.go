package catalog

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/semaphore"
)

// State is what Redis said about one name. Its parts were read one after the other, so they may not
// fit together exactly.
type State struct {
	Entry
	Lock    lock.Info     // if Kinds has Mutex
	Waiting int           // the length of the queue of the fair mutex
	Waiters []lock.Waiter // the first in that queue

	Permits       semaphore.Info // if Kinds has Semaphore; its Waiting is the length of the queue
	PermitWaiters []lock.Waiter  // the first in that queue

	// Subscribers is how many clients listen for releases of the mutex, and so about how many
	// clients wait for it. Clients of waiters in the queue count too. -1: Redis did not say.
	Subscribers int

	Err error // why the rest could not be read, such as a name that redlatch refuses
}

// IsIdle reports whether nobody holds or waits for anything of the name, as far as Redis said.
func (s *State) IsIdle() bool {
	return s.Err == nil && !s.Lock.Held() && s.Waiting == 0 && s.Permits.InUse == 0 && s.Permits.Waiting == 0
}

// States reads the state of each entry, in the order of the entries. show is how many waiters of
// each queue to read at most. It reads many entries at the same time, so that the client sends the
// commands in pipelines.
func (c *Catalog) States(ctx context.Context, entries []Entry, show int) []State {
	const atOnce = 64
	states := make([]State, len(entries))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(atOnce, len(entries)) {
		workers.Go(func() {
			for i := range next {
				states[i] = c.stateOf(ctx, entries[i], show)
			}
		})
	}
	for i := range entries {
		next <- i
	}
	close(next)
	workers.Wait()
	c.countSubscribers(ctx, states)
	return states
}

// State reads all that Redis knows of one name, whether or not List finds it. Kinds of the result
// says what there is. If it is 0 and Err is nil, nobody has used the name lately.
func (c *Catalog) State(ctx context.Context, name string, show int) State {
	s := c.States(ctx, []Entry{{name, Mutex | FairQueue | Semaphore}}, show)[0]
	if s.Err == nil {
		if !s.Lock.Held() && s.Lock.Fence == 0 && s.Waiting == 0 {
			s.Kinds &^= Mutex
		}
		if s.Waiting == 0 {
			s.Kinds &^= FairQueue
		}
		if s.Permits.Limit == 0 && s.Permits.InUse == 0 && s.Permits.Waiting == 0 {
			s.Kinds &^= Semaphore
		}
	}
	return s
}

func (c *Catalog) stateOf(ctx context.Context, e Entry, show int) State {
	s := State{Entry: e, Subscribers: -1}
	if e.Kinds.Has(Mutex) {
		s.Lock, s.Err = c.locks.Mutex(e.Name).Inspect(ctx)
	}
	if s.Err == nil && e.Kinds.Has(FairQueue) {
		s.Waiters, s.Waiting, s.Err = c.locks.FairMutex(e.Name).Queue(ctx, 0, show)
	}
	if s.Err == nil && e.Kinds.Has(Semaphore) {
		permits := c.locks.Semaphore(e.Name, anyLimit)
		if s.Permits, s.Err = permits.Inspect(ctx); s.Err == nil && s.Permits.Waiting > 0 {
			s.PermitWaiters, s.Permits.Waiting, s.Err = permits.Queue(ctx, 0, show)
		}
	}
	return s
}

// countSubscribers asks each server how many clients listen to the channel of each mutex. If one
// does not say, all are unknown. The client of a cluster listens on any one node, so replicas count
// too.
func (c *Catalog) countSubscribers(ctx context.Context, states []State) {
	index := map[string][]int{} // by channel, because x and {x} share one
	var channels []string
	for i := range states {
		if !states[i].Kinds.Has(Mutex) || states[i].Err != nil {
			continue
		}
		channel := key.ForMutex(c.prefix + states[i].Name).Channel
		if index[channel] == nil {
			channels = append(channels, channel)
		}
		index[channel] = append(index[channel], i)
	}
	var mu sync.Mutex
	counts := map[string]int64{}
	err := forEachNode(ctx, c.rdb, func(ctx context.Context, node redis.Cmdable) error {
		for from := 0; from < len(channels); from += pageSize {
			part, err := node.PubSubNumSub(ctx, channels[from:min(from+pageSize, len(channels))]...).Result()
			if err != nil {
				return err
			}
			mu.Lock()
			for channel, n := range part {
				counts[channel] += n
			}
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return
	}
	for channel, at := range index {
		for _, i := range at {
			states[i].Subscribers = int(counts[channel])
		}
	}
}

// forEachNode calls visit for each server, with the replicas of a cluster.
func forEachNode(ctx context.Context, rdb redis.UniversalClient, visit func(context.Context, redis.Cmdable) error) error {
	cluster, ok := rdb.(interface {
		ForEachShard(context.Context, func(context.Context, *redis.Client) error) error
	})
	if !ok {
		return visit(ctx, rdb)
	}
	return cluster.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error { return visit(ctx, node) })
}
