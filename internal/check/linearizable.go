package check

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/redlatch/redlatch/internal/history"
)

// Model is a lock as one client after the other would see it. States are
// comparable values, all of one type.
type Model[S comparable] struct {
	Initial S
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
	effective := slices.DeleteFunc(slices.Clone(ops), func(op history.Op) bool { return op.Outcome == history.Nothing })
	verdict := judge(append(effective, leftovers(effective)...), m)
	if verdict == porcupine.Ok {
		return nil
	}
	return fmt.Errorf("not linearizable (%s):\n%s", strings.ToLower(string(verdict)), Describe(ops))
}

// leftovers are the grants that waiters who gave up have left behind for a moment:
// refused, they asked once more, and left before the answer. A refusal names such a
// grant, and nobody was told of it. It was given since the first of those waiters
// came, and before the first who met it was told so. Which of them it belonged to
// does not matter, and leaving that open would cost a search much.
func leftovers(ops []history.Op) (more []history.Op) {
	told, met := map[string]bool{}, map[string]int64{}
	begun := int64(history.Never)
	for _, op := range ops {
		switch {
		case op.Outcome == history.Done:
			told[op.Acquisition] = true
		case op.Outcome == history.Refused && op.Holder != "":
			if first, again := met[op.Holder]; !again || op.Return < first {
				met[op.Holder] = op.Return
			}
		}
		if op.Kind == history.Acquire && op.Outcome == history.Refused {
			begun = min(begun, op.Call)
		}
	}
	for holder, at := range met {
		if !told[holder] && begun < at {
			more = append(more, history.Op{
				Client: -1 - len(more), Name: ops[0].Name, Owner: holder, Kind: history.Acquire, Outcome: history.Unknown, Call: begun, Return: at,
			})
		}
	}
	return more
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
