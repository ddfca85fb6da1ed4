package waitqueue

import (
	"container/heap"

	"github.com/redlatch/redlatch/internal/pubsub"
)

// ranks has the waiters of this client in each queue, by the key of the lock or semaphore.
type ranks[B any] map[string]*ranked[B]

// ranked is the waiters of this client in one queue.
type ranked[B any] struct {
	byTicket byTicket[B]          // a heap
	freed    *pubsub.Subscription // to Spec.Channel; nil: there is no such channel
}

// first returns the first waiter of the client in a queue, or nil.
func (r ranks[B]) first(key string) *waiter[B] {
	if all := r[key]; all != nil {
		return all.byTicket[0]
	}
	return nil
}

// add adds a waiter, unless it is there already.
func (r ranks[B]) add(w *waiter[B]) {
	if w.rank > 0 {
		return
	}
	all := r[w.spec.Key]
	if all == nil {
		all = &ranked[B]{freed: w.set.listenFreed(w.spec)}
		r[w.spec.Key] = all
	}
	heap.Push(&all.byTicket, w)
}

// remove removes a waiter, if it is there. If it was the first, the next one watches the end of the
// lease.
func (r ranks[B]) remove(w *waiter[B]) {
	if w.rank == 0 {
		return
	}
	all, wasFirst := r[w.spec.Key], w.rank == 1
	heap.Remove(&all.byTicket, w.rank-1)
	switch {
	case all.byTicket.Len() == 0:
		if all.freed != nil {
			all.freed.Close()
		}
		delete(r, w.spec.Key)
	case wasFirst && all.byTicket[0].isLeaseEndNear(all.byTicket[0].queueState):
		all.byTicket[0].signalLocked()
	}
}

// byTicket is a heap of waiters. Each waiter has its index in the heap, plus one, in rank.
type byTicket[B any] []*waiter[B]

func (h byTicket[B]) Len() int           { return len(h) }
func (h byTicket[B]) Less(i, j int) bool { return h[i].ticket < h[j].ticket }

func (h byTicket[B]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].rank, h[j].rank = i+1, j+1
}

func (h *byTicket[B]) Push(x any) {
	w := x.(*waiter[B])
	*h = append(*h, w)
	w.rank = len(*h)
}

func (h *byTicket[B]) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	w.rank = 0
	return w
}
