package waitqueue

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
)

// queueServer is a server with a queue, whose scripts are written in Go.
type queueServer struct {
	tickets  []int64  // of the waiters, in order; waiter i is "w:<i>"
	commands []string // with their parameters
	fails    string   // the command that is refused, by its beginning
	keeps    bool     // no waiter is removed
}

func (q *queueServer) Process(_ context.Context, cmd redis.Cmder) error {
	args := cmd.Args()[5:] // after the two keys
	var text string
	var reply []any
	switch {
	case len(args) == 2:
		text = fmt.Sprintf("remove %v", args[0])
		reply = []any{int64(1)}
		if q.keeps {
			reply = []any{int64(0)}
		}
	case fmt.Sprintf("%T", args[0]) == "int":
		text = fmt.Sprintf("list %v %q %v", args[0], args[1], args[2])
		from := q.behind(args[1].(string))
		if args[1] == "" {
			from = min(args[0].(int), len(q.tickets))
		}
		to := q.end(from, args[2].(int))
		reply = []any{int64(1_000_000), int64(len(q.tickets)), int64(0), q.ticketBefore(to)}
		for i := from; i < to; i++ {
			reply = append(reply, q.member(i), q.tickets[i], int64(1000+100*(i%2)-50))
		}
	default:
		text = fmt.Sprintf("find %v %q %v", args[0], args[1], args[2])
		from := q.behind(args[1].(string))
		to := q.end(from, args[2].(int))
		reply = []any{int64(2), q.ticketBefore(to)}
		if to == len(q.tickets) {
			reply = []any{int64(0)}
		}
		for i := from; i < to; i++ {
			if args[0] == fmt.Sprint("w:", i) {
				reply = []any{int64(1), q.member(i)}
			}
		}
	}
	q.commands = append(q.commands, text)
	if q.fails != "" && len(text) >= len(q.fails) && text[:len(q.fails)] == q.fails {
		cmd.SetErr(refusal{})
		return refusal{}
	}
	cmd.(interface{ SetVal(any) }).SetVal(reply)
	return nil
}

func (q *queueServer) member(i int) string { return fmt.Sprintf("w:%d 1 5000 30000 about", i) }

// behind returns the first waiter behind a ticket.
func (q *queueServer) behind(ticket string) int {
	if ticket == "" {
		return 0
	}
	after, _ := strconv.ParseInt(ticket, 10, 64)
	i, _ := slices.BinarySearch(q.tickets, after+1)
	return i
}

// end returns the end of a part. Waiters with the same ticket are in one part.
func (q *queueServer) end(from, most int) int {
	to := min(from+most, len(q.tickets))
	for to > from && to < len(q.tickets) && q.tickets[to] == q.tickets[to-1] {
		to++
	}
	return to
}

func (q *queueServer) ticketBefore(i int) string {
	if i == 0 {
		return ""
	}
	return strconv.FormatInt(q.tickets[i-1], 10)
}

type refusal struct{}

func (refusal) Error() string { return "NOPERM this user has no permissions" }
func (refusal) RedisError()   {}

// queueOf makes a queue with so many waiters. Their tickets are 1, 2, and so on.
func queueOf(t *testing.T, waiters int) (*queueServer, *session.Session, Inspector) {
	q := &queueServer{}
	for i := range waiters {
		q.tickets = append(q.tickets, int64(i+1))
	}
	s := session.New(session.Config{Redis: q})
	t.Cleanup(func() { _ = s.FinishClose(context.Background()) })
	return q, s, Inspector{Session: s, Name: "x", Queue: "queue", Alive: "alive"}
}

// A list has the waiters that were asked for, whatever the number of pages. It asks for no more
// than it needs.
func TestAListHasTheWaitersThatWereAskedFor(t *testing.T) {
	for _, c := range []struct {
		waiters, skip, show int
		first, shown        int
		commands            []string
	}{
		{3, 0, 10, 0, 3, []string{`list 0 "" 10`}},
		{3, 1, 1, 1, 1, []string{`list 1 "" 1`}},
		{3, -7, 2, 0, 2, []string{`list 0 "" 2`}},
		{3, 0, 0, 0, 0, []string{`list 0 "" 1`}},
		{3, 0, -5, 0, 0, []string{`list 0 "" 1`}},
		{3, 7, 2, 0, 0, []string{`list 7 "" 2`}},
		{3, math.MaxInt, 2, 0, 0, []string{`list 1073741824 "" 2`}},
		{0, 0, 2, 0, 0, []string{`list 0 "" 2`}},
		{1000, 0, 1000, 0, 1000, []string{`list 0 "" 1000`}},
		{1000, 0, 1001, 0, 1000, []string{`list 0 "" 1000`, `list 0 "1000" 1`}},
		{2500, 100, 1200, 100, 1200, []string{`list 100 "" 1000`, `list 100 "1100" 200`}},
		{2500, 0, 5000, 0, 2500, []string{`list 0 "" 1000`, `list 0 "1000" 1000`, `list 0 "2000" 1000`}},
	} {
		q, _, i := queueOf(t, c.waiters)
		got, length, err := i.List(t.Context(), c.skip, c.show)
		require.NoError(t, err)
		require.Equal(t, c.waiters, length)
		require.Equal(t, c.commands, q.commands)
		require.Len(t, got, c.shown)
		for n, w := range got {
			require.Equal(t, fmt.Sprint("w:", c.first+n), w.ID)
			require.Equal(t, "about", w.Description)
			require.Equal(t, time.UnixMicro(int64(c.first+n+1)), w.Since)
			left := time.Duration(0)
			if (c.first+n)%2 == 1 {
				left = 50 * time.Millisecond
			}
			require.Equal(t, left, w.HeartbeatLeft, "it is never negative")
		}
	}
}

// Waiters with the same ticket are on one page. No more are shown than were asked for.
func TestAListIsNotLongerThanItShouldBe(t *testing.T) {
	q, _, i := queueOf(t, 1100)
	for n := 1000; n < 1100; n++ {
		q.tickets[n] = 1001
	}
	got, _, err := i.List(t.Context(), 0, 1010)
	require.NoError(t, err)
	require.Len(t, got, 1010)
}

// An error of any page ends the list.
func TestAnErrorOfAPageEndsTheList(t *testing.T) {
	for _, page := range []string{`list 0 ""`, `list 0 "1000"`} {
		q, _, i := queueOf(t, 2000)
		q.fails = page
		got, length, err := i.List(t.Context(), 0, 2000)
		require.ErrorIs(t, err, lockerr.ErrRefused)
		require.Empty(t, got)
		require.Zero(t, length)
	}
}

// A waiter is looked for on all pages, and removed where it was found.
func TestAWaiterIsFoundOnAnyPage(t *testing.T) {
	for _, c := range []struct {
		acquisition, fails string
		keeps, removed     bool
		err                error
		commands           []string
	}{
		{acquisition: "w:5", removed: true, commands: []string{`find w:5 "" 1000`, `remove w:5 1 5000 30000 about`}},
		{acquisition: "w:1234", removed: true, commands: []string{`find w:1234 "" 1000`, `find w:1234 "1000" 1000`, `remove w:1234 1 5000 30000 about`}},
		{acquisition: "w:x", commands: []string{`find w:x "" 1000`, `find w:x "1000" 1000`}},
		{acquisition: "w:5", keeps: true, commands: []string{`find w:5 "" 1000`, `remove w:5 1 5000 30000 about`}},
		{acquisition: "w:5", fails: "find", err: lockerr.ErrRefused, commands: []string{`find w:5 "" 1000`}},
		{acquisition: "w:1234", fails: `find w:1234 "1000"`, err: lockerr.ErrRefused, commands: []string{`find w:1234 "" 1000`, `find w:1234 "1000" 1000`}},
		{acquisition: "w:5", fails: "remove", err: lockerr.ErrRefused, commands: []string{`find w:5 "" 1000`, `remove w:5 1 5000 30000 about`}},
	} {
		q, _, i := queueOf(t, 1500)
		q.fails, q.keeps = c.fails, c.keeps
		removed, err := i.Remove(t.Context(), c.acquisition)
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.removed, removed)
		require.Equal(t, c.commands, q.commands)
	}
}

// An operator of a client that closes asks nothing any more.
func TestAnInspectorStopsWhenTheClientCloses(t *testing.T) {
	q, s, i := queueOf(t, 3)
	s.BeginClose()
	_, _, err := i.List(t.Context(), 0, 1)
	require.ErrorIs(t, err, lockerr.ErrClosed)
	_, err = i.Remove(t.Context(), "w:1")
	require.ErrorIs(t, err, lockerr.ErrClosed)
	require.Empty(t, q.commands)
}
