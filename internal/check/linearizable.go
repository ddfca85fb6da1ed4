package check

import (
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/redlatch/redlatch/internal/history"
)

// Model is a lock as one client after the other would see it. States are
// comparable values, all of one type.
type Model[S comparable] struct {
	Initial S
	// Prepare makes of what was taken down what is to be explained: the same if nil.
	Prepare func(ops []history.Op) []history.Op
	// Step is the states in which the lock may be after op had the outcome it
	// has; none when it cannot have had it. An unknown outcome has happened or
	// not: both states.
	Step func(state S, op history.Op) []S
}

// patience is how long one history may take. It is reached by histories that
// are wrong, or too wide: more than some six clients.
const patience = 30 * time.Second

// Linearizable says whether what the clients of one lock were told is possible:
// each call took effect at one instant between its beginning and its end. The
// error shows the history. Not decided within half a minute is an error too.
func Linearizable[S comparable](ops []history.Op, m Model[S]) error {
	parts := ops
	if m.Prepare != nil {
		parts = m.Prepare(ops)
	}
	verdict := judge(parts, m)
	if verdict == porcupine.Ok {
		return nil
	}
	return fmt.Errorf("not linearizable (%s):\n%s", strings.ToLower(string(verdict)), Describe(ops))
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
	return porcupine.CheckOperationsTimeout(model.ToModel(), calls, patience)
}

// Describe shows a history, one call a line.
func Describe(ops []history.Op) string {
	var b strings.Builder
	for _, op := range ops {
		fmt.Fprintln(&b, op)
	}
	return b.String()
}
