package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/lockerr"
)

func newTally(t *testing.T, label func(string) string) *Tally {
	t.Helper()
	tally, err := NewTally(Config{NameLabel: label, QueueTimeout: time.Second})
	require.NoError(t, err)
	return tally
}

// show returns an update as text: the name, the value and the labels.
func show(u Update) string {
	return fmt.Sprint(Instruments[u.Instrument].Name, " ", u.Value, " ", u.Labels())
}

func showAll(updates []Update) (all []string) {
	for _, u := range updates {
		all = append(all, show(u))
	}
	return all
}

func TestTheInstrumentsAreWellFormed(t *testing.T) {
	dotted := regexp.MustCompile(`^redlatch(\.[a-z]+(_[a-z]+)*)+$`)
	names := map[string]bool{}
	for id := range Count {
		i := &Instruments[id]
		require.Regexp(t, dotted, i.Name)
		require.False(t, names[i.PrometheusName()], i.Name)
		names[i.PrometheusName()] = true
		require.Regexp(t, `^(s|\{[a-z]+\})$`, i.Unit, i.Name)
		require.Regexp(t, `^[A-Z].*\.$`, i.Help, i.Name)
		require.Equal(t, i.Type == Histogram, len(i.Buckets) > 0, i.Name)
		require.True(t, slices.IsSorted(i.Buckets), i.Name)
		require.LessOrEqual(t, len(newTally(t, func(s string) string { return s }).Labels(id)), maxLabels, i.Name)
	}
}

func TestPrometheusNames(t *testing.T) {
	require.Equal(t, "redlatch_wait_duration_seconds", Instruments[WaitDuration].PrometheusName())
	require.Equal(t, "redlatch_losses_total", Instruments[Losses].PrometheusName())
	require.Equal(t, "redlatch_held", Instruments[Held].PrometheusName())
	require.Equal(t, "error_type", PrometheusLabel(errorTypeKey))
}

// changes has each kind of event, and what it changes.
var changes = map[event.Kind][]struct {
	event   event.Event
	changed []string
}{
	event.WaitBegan: {{event.Event{Primitive: event.Mutex}, nil}},
	event.Queued:    {{event.Event{Primitive: event.FairMutex, Position: 2, Length: 3}, nil}},
	event.WaitEnded: {
		{
			event.Event{Primitive: event.Mutex, Result: event.Acquired, Source: event.Handoff, Duration: time.Second},
			[]string{"redlatch.wait.duration 1 [mutex acquired false]", "redlatch.grants 1 [mutex handoff]"},
		},
		{
			event.Event{Primitive: event.Semaphore, Result: event.Busy, Duration: time.Minute, Try: true},
			[]string{"redlatch.wait.duration 60 [semaphore busy true]"},
		},
		{
			event.Event{Primitive: event.FairMutex, Result: event.Acquired, Source: event.Reentry},
			[]string{"redlatch.reentries 1 [fair_mutex]"},
		},
	},
	event.Woken: {{event.Event{Primitive: event.Mutex, Result: event.LeaseEnd}, []string{"redlatch.wakeups 1 [mutex lease_end]"}}},
	event.Released: {
		{event.Event{Primitive: event.Mutex, Duration: time.Second}, []string{"redlatch.hold.duration 1 [mutex released]"}},
		{
			event.Event{Primitive: event.Mutex, Duration: time.Second, Err: lockerr.ErrUnavailable},
			[]string{"redlatch.hold.duration 1 [mutex released]", "redlatch.unconfirmed_releases 1 [mutex unavailable]"},
		},
	},
	event.Lost: {{
		event.Event{Primitive: event.Semaphore, Duration: time.Second, Result: event.Gone},
		[]string{"redlatch.hold.duration 1 [semaphore lost]", "redlatch.losses 1 [semaphore gone]"},
	}},
	event.Leaked: {{event.Event{Primitive: event.Mutex}, []string{"redlatch.leaked_holds 1 [mutex]"}}},
	event.Renewed: {
		{
			event.Event{Result: event.Extended, Count: 7, Duration: time.Second},
			[]string{"redlatch.renewals 7 [lock extended]", "redlatch.renewal.duration 1 [lock extended]"},
		},
		{
			event.Event{Primitive: event.Semaphore, Result: event.Failed, Count: 2, Duration: time.Second},
			[]string{"redlatch.renewals 2 [permit failed]", "redlatch.renewal.duration 1 [permit failed]"},
		},
	},
	event.Retried: {
		{event.Event{Primitive: event.Mutex, Err: io.EOF}, []string{"redlatch.retries 1 [mutex connection]"}},
		{event.Event{Err: io.EOF}, []string{"redlatch.retries 1 [none connection]"}},
	},
	event.LateGrant:    {{event.Event{Primitive: event.Mutex}, []string{"redlatch.late_grants 1 [mutex]"}}},
	event.Disconnected: {{event.Event{Err: io.EOF}, []string{"redlatch.pubsub.disconnects 1 [connection]"}}},
	event.Dropped:      {{event.Event{Primitive: event.Mutex, Count: 9}, []string{"redlatch.dropped_events 9 [mutex]"}}},
}

func TestEachKindOfEventChangesItsInstruments(t *testing.T) {
	for kind := event.WaitBegan; kind.String() != "unknown"; kind++ {
		require.NotEmpty(t, changes[kind], "%v has no row", kind)
		for _, row := range changes[kind] {
			e := row.event
			e.Kind, e.Name = kind, "orders:42"
			updates := newTally(t, nil).Updates(nil, e)
			require.Equal(t, row.changed, showAll(updates), kind)
			require.LessOrEqual(t, len(updates), MaxUpdates)
			for _, u := range updates {
				require.Len(t, u.Labels(), len(Instruments[u.Instrument].Labels), show(u))
			}
		}
	}
}

// Each instrument of events is changed by one of the rows above.
func TestNoInstrumentIsWithoutAnEvent(t *testing.T) {
	changed := map[ID]bool{Waiting: true, Held: true, OldestHoldAge: true} // see the tests of state
	for kind, rows := range changes {
		for _, row := range rows {
			row.event.Kind = kind
			for _, u := range newTally(t, nil).Updates(nil, row.event) {
				changed[u.Instrument] = true
			}
		}
	}
	for id := range Count {
		require.Equal(t, Instruments[id].Pulled == "", changed[id], Instruments[id].Name)
	}
}

func TestUpdatesCostNoMemory(t *testing.T) {
	tally := newTally(t, nil)
	e := event.Event{Kind: event.WaitEnded, Client: "a", Primitive: event.Mutex, Name: "orders:42", Result: event.Busy}
	tally.Updates(nil, e)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		var buffer [MaxUpdates]Update
		if len(tally.Updates(buffer[:0], e)) != 1 {
			t.Error("no update")
		}
	}))
}

func TestZerosHaveTheLabelsOfTheirInstruments(t *testing.T) {
	for _, label := range []func(string) string{nil, func(string) string { return "a" }} {
		tally := newTally(t, label)
		zeros := tally.Zeros()
		require.NotEmpty(t, zeros)
		for _, u := range zeros {
			require.Zero(t, u.Value)
			require.Equal(t, Counter, Instruments[u.Instrument].Type)
			require.Len(t, u.Labels(), len(tally.Labels(u.Instrument)), show(u))
			require.NotContains(t, u.Labels(), "unknown")
		}
	}
	require.Contains(t, showAll(newTally(t, nil).Zeros()), "redlatch.losses 0 [fair_mutex no_progress]")
}

func TestNamesHaveLabelsOnlyIfTheProgramMapsThem(t *testing.T) {
	lostOne := event.Event{Kind: event.Lost, Primitive: event.Mutex, Name: "orders:42", Result: event.Gone}
	require.Equal(t, "redlatch.losses 1 [mutex gone]", show(newTally(t, nil).Updates(nil, lostOne)[1]))
	tally := newTally(t, func(name string) string { return name[:6] })
	require.Equal(t, []string{"primitive", "reason", "name"}, tally.Labels(Losses))
	require.Equal(t, "redlatch.losses 1 [mutex gone orders]", show(tally.Updates(nil, lostOne)[1]))
	require.Equal(t, []string{"redlatch.dropped_events 1 [none]"}, showAll(tally.Updates(nil, event.Event{Kind: event.Dropped, Count: 1})), "it has no name")
}

func TestLabelsOfNamesAreFew(t *testing.T) {
	n := names{label: func(name string) string {
		if name == "bad" {
			panic("a bug of the program")
		}
		return name
	}}
	for i := range maxNames {
		require.Equal(t, fmt.Sprint(i), n.of(fmt.Sprint(i)))
	}
	require.Equal(t, "other", n.of("one more"))
	require.Equal(t, "7", n.of("7"), "it is known")
	require.Equal(t, "other", n.of("bad"))
	require.Empty(t, n.of(""))
	require.Equal(t, "a\uFFFD", (&names{label: func(string) string { return "a\xff" }}).of("orders"), "Prometheus refuses other text")
}

type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

func TestErrorTypesAreWords(t *testing.T) {
	for want, err := range map[string]error{
		"unavailable":    &lockerr.OpError{Kind: lockerr.ErrUnavailable, Op: "lock", Err: io.EOF},
		"indeterminate":  fmt.Errorf("with text: %w", lockerr.ErrIndeterminate),
		"refused":        lockerr.ErrRefused,
		"closed":         lockerr.ErrClosed,
		"config":         &lockerr.ConfigError{},
		"lost":           lockerr.ErrLost,
		"not_replicated": lockerr.ErrNotReplicated,
		"timeout":        context.DeadlineExceeded,
		"canceled":       context.Canceled,
		"connection":     &net.OpError{Op: "dial", Err: errors.New("no route")},
		"loading":        answer("LOADING Redis is loading the dataset in memory"),
		"redis_error":    answer("ERR user_script:1: secret"),
		"_OTHER":         errors.New("secret"),
	} {
		require.Equal(t, want, ErrorType(err))
	}
	require.Equal(t, "timeout", ErrorType(&net.OpError{Op: "read", Err: &net.DNSError{IsTimeout: true}}))
}
