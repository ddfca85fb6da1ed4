package telemetry

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/event"
)

func began(client string) event.Event {
	return event.Event{Kind: event.WaitBegan, Client: client, Primitive: event.Mutex, Name: "orders"}
}

func acquired(client string, n int) event.Event {
	return event.Event{
		Kind: event.WaitEnded, Time: time.Now(), Client: client, Primitive: event.Mutex, Name: "orders",
		Result: event.Acquired, Source: event.Redis, ID: fmt.Sprint(client, ":", n),
	}
}

func ended(kind event.Kind, client string, n int) event.Event {
	return event.Event{Kind: kind, Client: client, Primitive: event.Mutex, Name: "orders", ID: fmt.Sprint(client, ":", n)}
}

// gauges returns the gauges of a primitive without queues, as text.
func gauges(tally *Tally, primitive event.Primitive) (all []string) {
	for _, u := range tally.Read(context.Background()) {
		if u.Labels()[0] == primitive.String() {
			all = append(all, show(u))
		}
	}
	return all
}

func (t *Tally) observe(events ...event.Event) {
	for _, e := range events {
		t.Updates(nil, e)
	}
}

func TestGaugesCountUpAndDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tally := newTally(t, nil)
		tally.observe(began("a"), began("a"), began("b"), acquired("a", 1))
		time.Sleep(5 * time.Second)
		tally.observe(acquired("b", 1))
		time.Sleep(time.Second)
		require.Equal(t, []string{"redlatch.waiting 1 [mutex]", "redlatch.held 2 [mutex]", "redlatch.oldest_hold.age 6 [mutex]"}, gauges(tally, event.Mutex))
		reentry := acquired("a", 1)
		reentry.Source = event.Reentry
		tally.observe(began("a"), reentry, ended(event.Released, "a", 1))
		require.Equal(t, []string{"redlatch.waiting 1 [mutex]", "redlatch.held 1 [mutex]", "redlatch.oldest_hold.age 1 [mutex]"}, gauges(tally, event.Mutex))
		busy := event.Event{Kind: event.WaitEnded, Client: "a", Primitive: event.Mutex, Result: event.Busy}
		tally.observe(busy, ended(event.Lost, "b", 1))
		require.Equal(t, []string{"redlatch.waiting 0 [mutex]", "redlatch.held 0 [mutex]"}, gauges(tally, event.Mutex))
		require.Equal(t, []string{"redlatch.waiting 0 [semaphore]", "redlatch.held 0 [semaphore]"}, gauges(tally, event.Semaphore))
	})
}

// Dropped corrects the counts of its client and primitive, and no others.
func TestGaugesAreRightAfterDroppedEvents(t *testing.T) {
	tally := newTally(t, nil)
	other := acquired("a", 9)
	other.Primitive = event.FairMutex
	tally.observe(began("a"), acquired("a", 1), began("a"), acquired("a", 2), began("b"), acquired("b", 1), began("b"), other)
	tally.observe(event.Event{Kind: event.Dropped, Client: "a", Primitive: event.Mutex, Count: 3, Waiting: 4, Held: 1})
	got := gauges(tally, event.Mutex)
	require.Equal(t, []string{"redlatch.waiting 5 [mutex]", "redlatch.held 2 [mutex]"}, got[:2], "4 and 1 of a, 1 and 1 of b")
	require.Len(t, tally.state.holds, 2, "those of b, and of the other primitive")
	tally.observe(ended(event.Released, "a", 2))
	require.Equal(t, "redlatch.held 1 [mutex]", gauges(tally, event.Mutex)[1])
}

// A loss may be observed before its grant.
func TestAnEndBeforeItsGrantLeavesNothing(t *testing.T) {
	tally := newTally(t, nil)
	tally.observe(began("a"), ended(event.Lost, "a", 1))
	require.Equal(t, "redlatch.held 0 [mutex]", gauges(tally, event.Mutex)[1], "and not -1")
	tally.observe(acquired("a", 1))
	require.Equal(t, []string{"redlatch.waiting 0 [mutex]", "redlatch.held 0 [mutex]"}, gauges(tally, event.Mutex))
	for n := range 1000 {
		tally.observe(ended(event.Lost, "a", n+2))
	}
	require.Empty(t, tally.state.holds)
}

func TestClientsThatHaveNothingAreForgotten(t *testing.T) {
	tally := newTally(t, nil)
	tally.observe(began("kept"))
	for n := range 1000 {
		client := fmt.Sprint("client", n)
		tally.observe(began(client), acquired(client, 1), ended(event.Released, client, 1))
	}
	require.Less(t, len(tally.state.clients), 20)
	require.Contains(t, tally.state.clients, "kept")
	require.Equal(t, "redlatch.waiting 1 [mutex]", gauges(tally, event.Mutex)[0])
}

func TestTheAgeOfTheOldestGrantIsThatOfItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tally := newTally(t, func(name string) string { return name })
		first, second := acquired("a", 1), acquired("a", 2)
		second.Name = "reports"
		tally.observe(first)
		time.Sleep(time.Minute)
		second.Time = time.Now()
		tally.observe(second)
		time.Sleep(time.Second)
		got := gauges(tally, event.Mutex)[2:]
		slices.Sort(got)
		require.Equal(t, []string{"redlatch.oldest_hold.age 1 [mutex reports]", "redlatch.oldest_hold.age 61 [mutex orders]"}, got)
	})
}

func TestEventsOfALaterVersionAreIgnored(t *testing.T) {
	tally := newTally(t, nil)
	require.Empty(t, tally.Updates(nil, event.Event{Kind: 200}))
	tally.observe(event.Event{Kind: event.WaitBegan, Primitive: 200})
	require.Len(t, tally.Read(t.Context()), 6)
}
