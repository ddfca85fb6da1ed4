package check

import (
	"slices"

	"github.com/redlatch/redlatch/internal/history"
)

// Limits is how many units there may have been at most at some instant of a span.
type Limits func(from, until int64) int

// Limit is that number of units, until one of the resizes takes effect: 1 and none
// for a mutex. A resize may have been in force from its call on, and until another
// that was called after its return has returned.
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
