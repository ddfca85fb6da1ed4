package check

import (
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/redlatch/redlatch/internal/test/history"
)

// Model is a lock as it would be for one client after the other. States are comparable values, all
// of one type.
type Model[S comparable] struct {
	Initial S
	// Prepare makes the operations to explain from the recorded ones. If it is nil, they are the
	// same.
	Prepare func(ops []history.Op) []history.Op
	// Step returns the states in which the lock may be after op, with the outcome that op has. It
	// returns none if that outcome is impossible. An operation with an unknown outcome may have
	// happened or not, so Step returns both states.
	Step func(state S, op history.Op) []S
}

// checkTime is how long one history may take. Histories that are wrong take that long, and so do
// those with more than about six clients.
const checkTime = 30 * time.Second

// Linearizable checks that the answers to the clients of one lock are possible. Each call must have
// taken effect at one instant between its beginning and its end. The error shows the history. It is
// also an error if the search does not end within half a minute.
func Linearizable[S comparable](ops []history.Op, m Model[S]) error {
	parts := ops
	if m.Prepare != nil {
		parts = m.Prepare(ops)
	}
	result := judge(parts, m)
	if result == porcupine.Ok {
		return nil
	}
	return fmt.Errorf("not linearizable (%s):\n%s", strings.ToLower(string(result)), Describe(ops))
}

func judge[S comparable](ops []history.Op, m Model[S]) porcupine.CheckResult {
	seed := maphash.MakeSeed()
	model := porcupine.NondeterministicModel{
		Hash: func(state any) uint64 { return maphash.Comparable(seed, state.(S)) },
		Init: func() []any { return []any{m.Initial} },
		Step: func(state, input, _ any) []any {
			var next []any
			for _, s := range m.Step(state.(S), input.(history.Op)) {
				next = append(next, s)
			}
			return next
		},
	}
	calls := make([]porcupine.Operation, len(ops))
	for i, op := range ops {
		calls[i] = porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Call, Return: op.Return}
	}
	return porcupine.CheckOperationsTimeout(model.ToModel(), calls, checkTime)
}

// Describe shows a history, with one call on each line.
func Describe(ops []history.Op) string {
	var b strings.Builder
	for _, op := range ops {
		fmt.Fprintln(&b, op)
	}
	return b.String()
}
