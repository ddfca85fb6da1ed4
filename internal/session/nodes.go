package session

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/node"
)

// nodes knows which master of a cluster serves which slots. The watchdog has calls of its own for
// each master, and each master has a sender. The answer may be out of date. The commands for such a
// slot reach the right master all the same, but another master that hangs may delay them.
type nodes struct {
	ask    func(ctx context.Context) ([]node.SlotRange, error)
	ranges atomic.Pointer[[]node.SlotRange] // in the order of the slots; nil: not known yet
}

// learn asks a node for the slots of all. If there is no answer, it keeps what it knew. A node that
// has left the cluster answers that there are none.
func (n *nodes) learn(ctx context.Context) {
	ranges, err := n.ask(ctx)
	if err != nil || len(ranges) == 0 {
		return
	}
	slices.SortFunc(ranges, func(a, b node.SlotRange) int { return cmp.Compare(a.First, b.First) })
	n.ranges.Store(&ranges)
}

func (n *nodes) areKnown() bool { return n.ranges.Load() != nil }

// of returns the address of the master that serves a slot, or "" if that is not known.
func (n *nodes) of(slot int) string {
	known := n.ranges.Load()
	if known == nil {
		return ""
	}
	i, _ := slices.BinarySearchFunc(*known, slot, func(r node.SlotRange, slot int) int { return cmp.Compare(r.Last, slot) })
	if i == len(*known) || (*known)[i].First > slot {
		return ""
	}
	return (*known)[i].Master
}
