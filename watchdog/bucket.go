package watchdog

import (
	"slices"
	"time"
)

// bucketKey says which leases share a bucket: those that may share a call and have the same
// interval. The interval is part of the key because the time limit of a call follows from it. Among
// mixed leases the shortest would cut the time of all, and the longest would keep the shortest from
// its retries.
type bucketKey struct {
	group Group
	every time.Duration
}

// bucket holds leases that may share one call.
type bucket struct {
	bucketKey
	leases    heap[*Lease] // by what is due
	dueLeases []*Lease     // due, in order; skips those stopped meanwhile
	calls     int          // in flight, without those given up
	index     int          // in the watchdog's heap
	queued    bool         // in dueBuckets of a server
	failingOn *server      // whose last call for this bucket failed as a whole; nil: it did not
}

func (b *bucket) setIndex(i int) { b.index = i }

// nextBatch picks the next batch: first the leases in line, then, if there is room, those that will
// be due soon. To ask early without room would make more calls, not fewer.
func (b *bucket) nextBatch(now int64, size int) []*Lease {
	var batch []*Lease
	for len(b.dueLeases) > 0 && len(batch) < size {
		if l := b.dueLeases[0]; l.state == waiting {
			batch = append(batch, l)
		}
		b.dueLeases = b.dueLeases[1:]
	}
	if len(b.dueLeases) == 0 {
		b.dueLeases = nil // let go of the array
	}
	soon := instantAfter(now, b.every/coalesce)
	for len(batch) > 0 && len(batch) < size && b.leases.first() <= soon {
		l := b.leases[0].of
		if l.state != idle {
			break // an end of trust, which is never early
		}
		l.state = waiting
		b.leases.fix(0, l.due())
		batch = append(batch, l)
	}
	return batch
}

// all returns a copy, because the heap moves when a lease is due at another time.
func (b *bucket) all() []*Lease {
	leases := make([]*Lease, len(b.leases))
	for i, s := range b.leases {
		leases[i] = s.of
	}
	return leases
}

// RenewNow makes every lease of these groups due now, in the usual batches. It is for a caller that
// may have missed news of them. A call in flight may be older than the news, so its leases are due
// again when it ends. It does not block.
func (w *Watchdog) RenewNow(is func(group Group) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now().mono
	for _, b := range w.buckets {
		if !is(b.group) {
			continue
		}
		for _, l := range b.all() {
			l.next = min(l.next, now)
			l.again = l.state == inCall
			w.replace(l)
		}
		w.wakeLoop(b.leases.first())
	}
}

// Regroup puts every lease into the group that of returns for its key and its present group. It is
// for a caller that learns later which leases may share a call. Calls in flight go on as they are.
func (w *Watchdog) Regroup(of func(key string, group Group) Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	moved := map[*Lease]bucketKey{}
	for _, b := range w.buckets {
		for _, s := range b.leases {
			if group := of(s.of.key, b.group); group != b.group {
				moved[s.of] = bucketKey{group, b.every}
			}
		}
	}
	for l, to := range moved {
		w.move(l, to)
	}
	for _, b := range w.buckets {
		b.dueLeases = slices.DeleteFunc(b.dueLeases, func(l *Lease) bool { return l.bucket != b })
	}
}

// move puts l into another bucket. If it waited for a call, it is due there at once.
func (w *Watchdog) move(l *Lease, to bucketKey) {
	w.drop(l)
	if l.state == waiting {
		l.state = idle
	}
	w.add(l, to)
}
