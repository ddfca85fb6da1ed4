package check

import (
	"slices"

	"github.com/redlatch/redlatch/internal/test/history"
)

// Limits returns the largest number of units that there may have been at some instant of a span.
type Limits func(from, until int64) int

// Limit is the given number of units until one of the resizes takes effect. For a mutex, it is 1,
// without resizes. A resize may count from its call on. It counts until another resize has returned
// that was called after its own return.
func Limit(units int, ops ...history.Op) Limits {
	resizes := []history.Op{{Units: units, Call: -1, Return: -1}}
	for _, op := range ops {
		if op.Kind == history.Resize && op.Outcome != history.Nothing {
			resizes = append(resizes, op)
		}
	}
	return func(from, until int64) (most int) {
		for _, r := range resizes {
			over := slices.ContainsFunc(resizes, func(later history.Op) bool {
				return later.Call > r.Return && later.Return < from
			})
			if r.Call < until && !over {
				most = max(most, r.Units)
			}
		}
		return most
	}
}
