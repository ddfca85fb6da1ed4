package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/redlatch/redlatch/internal/test/history"
)

// Fences checks that the fences of one lock only grew. If a grant was requested after another had
// been given, it has the larger fence. No two grants have the same fence, and a re-entry has that
// of its grant. Other checks judge whether there should have been a re-entry.
func Fences(ops []history.Op) error {
	var grants []history.Op
	for _, op := range ops {
		if op.Outcome == history.Done && (op.Kind == history.Acquire || op.Kind == history.Try) {
			grants = append(grants, op)
		}
	}
	if err := oneFenceEach(grants); err != nil {
		return err
	}
	given := slices.Clone(grants)
	slices.SortFunc(given, func(a, b history.Op) int { return cmp.Compare(a.Return, b.Return) })
	slices.SortFunc(grants, func(a, b history.Op) int { return cmp.Compare(a.Call, b.Call) })
	var largest history.Op // of the grants given before the next was requested
	entered := map[string]bool{}
	for _, op := range grants {
		again := entered[op.Acquisition]
		entered[op.Acquisition] = true
		for len(given) > 0 && given[0].Return < op.Call {
			if given[0].Fence > largest.Fence {
				largest = given[0]
			}
			given = given[1:]
		}
		if op.Fence < largest.Fence && !again {
			return fmt.Errorf("a fence went back:\n%v\n%v", largest, op)
		}
	}
	return nil
}

func oneFenceEach(grants []history.Op) error {
	byFence, byGrant := map[int64]history.Op{}, map[string]history.Op{}
	for _, op := range grants {
		if op.Fence == 0 {
			return fmt.Errorf("a grant without fence:\n%v", op)
		}
		if other, again := byFence[op.Fence]; again && other.Acquisition != op.Acquisition {
			return fmt.Errorf("two grants with one fence:\n%v\n%v", other, op)
		}
		if other, again := byGrant[op.Acquisition]; again && other.Fence != op.Fence {
			return fmt.Errorf("one grant with two fences:\n%v\n%v", other, op)
		}
		byFence[op.Fence], byGrant[op.Acquisition] = op, op
	}
	return nil
}
