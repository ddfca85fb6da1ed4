package history_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/history"
)

func done(op *history.Op) { op.Outcome = history.Done }

// ticking is a clock that counts its readings.
func ticking() history.Clock {
	var n int64
	return func() int64 { n++; return n }
}

// The files of two processes read as one history, in the order of their calls. It is the same as a
// history in memory.
func TestFilesReadAsOneHistory(t *testing.T) {
	clock := ticking()
	var first, second bytes.Buffer
	a, b, both := history.ToFile(clock, &first), history.ToFile(clock, &second), history.InMemory(ticking())
	for _, pair := range [][2]*history.Recorder{{a, b}, {both, both}} {
		one := pair[0].Begin(history.Op{Client: 1, Name: "n", Owner: "x", Kind: history.Acquire})
		two := pair[1].Begin(history.Op{Client: 2, Name: "n", Owner: "y", Kind: history.Try})
		two.End(func(op *history.Op) { op.Outcome = history.Refused })
		one.End(func(op *history.Op) { op.Outcome, op.Fence = history.Done, 7 })
		pair[0].Trust(history.Window{Client: 1, Name: "n", Owner: "x", From: 4, Until: 5})
	}
	require.NoError(t, a.Err())
	read, err := history.Read(&second, &first)
	require.NoError(t, err)
	require.Equal(t, both.History(), read)
	require.Equal(t, []int64{1, 2}, []int64{read.Ops[0].Call, read.Ops[1].Call})
	require.Equal(t, int64(7), read.Ops[0].Fence)
	require.Equal(t, history.Refused, read.Ops[1].Outcome)
}

// A process that was killed leaves a call without return, and half a line.
func TestAKilledProcessLosesAtMostItsLastLine(t *testing.T) {
	var file bytes.Buffer
	r := history.ToFile(ticking(), &file)
	r.Begin(history.Op{Name: "n", Kind: history.Acquire}).End(done)
	r.Begin(history.Op{Name: "n", Kind: history.Release})
	whole := file.String()
	r.Begin(history.Op{Name: "n", Kind: history.Acquire})
	cut := file.String()[:len(whole)+10]
	h, err := history.Read(strings.NewReader(cut))
	require.NoError(t, err)
	require.Len(t, h.Ops, 2)
	require.Equal(t, history.Done, h.Ops[0].Outcome)
	require.Equal(t, history.Unknown, h.Ops[1].Outcome)
	require.Equal(t, int64(history.Never), h.Ops[1].Return)
}

// If a process is killed, the notes about its calls are not lost.
func TestAKilledProcessLeavesWhatItNoted(t *testing.T) {
	var file bytes.Buffer
	memory := history.InMemory(ticking())
	for _, r := range []*history.Recorder{history.ToFile(ticking(), &file), memory} {
		r.Begin(history.Op{Name: "n", Kind: history.Acquire}).Note(func(op *history.Op) { op.Queued = 7 })
	}
	h, err := history.Read(&file)
	require.NoError(t, err)
	require.Equal(t, memory.History(), h)
	require.Equal(t, int64(7), h.Ops[0].Queued)
	require.Equal(t, int64(history.Never), h.Ops[0].Return)
}

// A damaged line anywhere else is an error, and does not make the history shorter.
func TestDamagedFilesAreNotReadInPart(t *testing.T) {
	for _, text := range []string{"{}\n", "nonsense\n", "{\"op\":{}}\nnonsense\n{\"id\":1,\"op\":{}}\n"} {
		_, err := history.Read(strings.NewReader(text))
		require.Error(t, err, text)
	}
}

// An unknown outcome stays possible for ever, although the call has returned.
func TestAnUnknownOutcomeHasNoEnd(t *testing.T) {
	r := history.InMemory(ticking())
	op := r.Begin(history.Op{Name: "n", Kind: history.Acquire}).End(func(*history.Op) {})
	require.Equal(t, int64(history.Never), op.Return)
	require.Equal(t, op, r.History().Ops[0])
}

func TestTheLastWordOnAWindowCounts(t *testing.T) {
	r := history.InMemory(ticking())
	for _, until := range []int64{2, 9, 5} {
		r.Trust(history.Window{Client: 1, Name: "n", Owner: "x", From: 1, Until: until})
	}
	r.Trust(history.Window{Client: 1, Name: "n", Owner: "x", From: 20, Until: 21})
	h := r.History().ByName()["n"]
	require.Len(t, h.Windows, 2)
	require.Equal(t, int64(9), h.Windows[0].Until)
}

func TestClocksOnlyGrow(t *testing.T) {
	start := time.Now()
	for _, clock := range []history.Clock{history.Since(start), history.Monotonic} {
		before := clock()
		for range 1000 {
			now := clock()
			require.GreaterOrEqual(t, now, before)
			before = now
		}
	}
	strict := history.Since(start.Add(time.Hour)) // a clock that stands still
	require.Less(t, strict(), strict())
}
