package simulation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/history"
)

// answered is an operation of a client. The owner of the operation is named after the client.
func answered(client int, k history.Kind, from, to time.Duration, o history.Outcome, fence int64) history.Op {
	name := string(rune('a' + client))
	op := history.Op{Client: client, Name: "n", Owner: name, Kind: k, Call: int64(from), Return: int64(to), Outcome: o, Fence: fence}
	if o == history.Done {
		op.Acquisition = name
	}
	return op
}

// A refusal may name a waiter that was notified only of a later grant. That is right only if the
// waiter may have missed the notification of an earlier grant, or if copies come late.
func TestRefusalsWhereLeasesEnd(t *testing.T) {
	refused := answered(2, history.Try, 10, 11, history.Refused, 0)
	refused.Holder = "a"
	ops := []history.Op{
		answered(0, history.Acquire, 1, 50, history.Done, 20), refused,
		answered(1, history.Acquire, 20, 21, history.Done, 10), answered(1, history.Release, 22, 23, history.Done, 0),
		answered(0, history.Release, 52, 53, history.Done, 0),
	}
	judge := func(name string, o outcome) error {
		o.history.Ops, o.lease = ops, time.Second
		return primitives[name].expires(o)
	}
	for _, name := range []string{"mutex", "fair mutex"} {
		require.NoError(t, judge(name, outcome{disturbed: map[int]bool{0: true}}), name)
		require.NoError(t, judge(name, outcome{late: true}), name)
		require.Error(t, judge(name, outcome{}), name)
		require.Error(t, judge(name, outcome{disturbed: map[int]bool{1: true, 2: true}}), name)
	}
}

// A grant that comes long after the release is excused only if commands came late. Late commands do
// not excuse a wrong order of grants.
func TestHandOversHaveToBePrompt(t *testing.T) {
	waited := func(until time.Duration, fence int64) history.Op {
		op := answered(1, history.Acquire, 3, until, history.Done, fence)
		op.Queued = 4
		return op
	}
	first, given := answered(0, history.Acquire, 1, 2, history.Done, 10), answered(0, history.Release, 10, 11, history.Done, 0)
	order := func(o outcome, ops ...history.Op) error {
		o.history.Ops = ops
		return o.order(primitives["fair mutex"])
	}
	require.NoError(t, order(outcome{}, first, given, waited(soon, 11)))
	require.Error(t, order(outcome{}, first, given, waited(2*soon, 11)))
	require.NoError(t, order(outcome{late: true}, first, given, waited(2*soon, 11)))

	passed := answered(2, history.Acquire, 5, 30, history.Done, 11)
	require.Error(t, order(outcome{late: true}, first, given, passed, waited(40, 12)))
}
