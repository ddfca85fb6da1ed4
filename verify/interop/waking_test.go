package interop_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
)

// party is one service, in either language. Its leases and waits are longer than any test.
type party interface {
	take(t testing.TB, name string)
	leave(t testing.TB, name string) (begun time.Time)
	await(t testing.TB, name string) <-chan time.Time // starts to wait; the value is when it got the lock
}

// goParty is a client of this library.
type goParty struct {
	locks *redlatch.Client
	holds map[string]*lock.Hold
}

func newGoParty(t testing.TB, rdb redis.UniversalClient) *goParty {
	return &goParty{
		locks: locksOn(t, rdb, redlatch.WithLease(never), redlatch.WithPollInterval(never)),
		holds: map[string]*lock.Hold{},
	}
}

func (g *goParty) take(t testing.TB, name string) {
	g.holds[name] = mustLock(t, t.Context(), g.locks.Mutex(name))
}

func (g *goParty) leave(t testing.TB, name string) time.Time {
	begun := time.Now()
	unlock(t, g.holds[name])
	return begun
}

func (g *goParty) await(t testing.TB, name string) <-chan time.Time {
	got, at := waits(t, g.locks.Mutex(name)), make(chan time.Time, 1)
	go func() {
		won := <-got
		if won.err != nil {
			return // the caller that waits for it reports that
		}
		g.holds[name] = won.hold
		at <- won.at
	}()
	return at
}

// javaParty is a thread of a Redisson client.
type javaParty struct{ *thread }

func (j *javaParty) take(_ testing.TB, name string) { j.leased(name, never) }

func (j *javaParty) leave(t testing.TB, name string) time.Time {
	r := j.do("unlock", "lock", name)
	require.Empty(t, r.err)
	return r.begun
}

func (j *javaParty) await(t testing.TB, name string) <-chan time.Time {
	answer, at := j.begin("lock", "lock", name, millis(never)), make(chan time.Time, 1)
	go func() {
		if r := <-answer; r.err == "" {
			at <- r.ended
		}
	}()
	return at
}

// An unlock wakes up a waiter by message, in either language. Nothing else ends the wait before the
// time limit of the test. The test reports the delays, and does not judge them.
func TestUnlockWakesTheOtherLanguageByMessage(t *testing.T) {
	r := java(t)
	server := redistest.Start(t)
	holders := map[string]party{
		"Go":   newGoParty(t, server.Client(t)),
		"Java": &javaParty{r.open(t, server.Addr()).thread("holds")},
	}
	waiters := map[string]party{
		"Go":   newGoParty(t, server.Client(t)),
		"Java": &javaParty{r.open(t, server.Addr()).thread("waits")},
	}
	for _, p := range waiters {
		p.take(t, "before") // it knows the server's clock, and the server knows its scripts
		p.leave(t, "before")
	}
	for _, from := range []string{"Go", "Java"} {
		for _, to := range []string{"Go", "Java"} {
			var delays []time.Duration
			for range 50 {
				name := redistest.Name(t)
				holders[from].take(t, name)
				before := scripts(t, server)
				got := waiters[to].await(t, name)
				asleep(t, before, func() bool { return listeners(t, server.Control(), name) == 1 }, server)
				begun := holders[from].leave(t, name)
				delays = append(delays, within(t, got, to+" is woken by "+from).Sub(begun))
				waiters[to].leave(t, name)
			}
			slices.Sort(delays)
			t.Logf("from the unlock in %-4s to the lock in %-4s: p50 %v, p90 %v", from, to, delays[len(delays)/2], delays[len(delays)*9/10])
		}
	}
}

// asleep returns when the only waiter of a name listens, and has asked again since then. After
// that, only a message lets it ask again. before is the result of scripts when it began to wait.
// Nobody else may run scripts on these servers. A Go waiter must have made an attempt before.
// Otherwise its first attempt may be void, because it does not know the server's clock.
func asleep(t testing.TB, before int, listening func() bool, servers ...*redistest.Server) {
	t.Helper()
	require.Eventually(t, func() bool { return listening() && scripts(t, servers...) >= before+2 }, guard, time.Millisecond, "it waits")
}

// scripts counts the scripts that the servers have run.
func scripts(t testing.TB, servers ...*redistest.Server) (sum int) {
	t.Helper()
	for _, server := range servers {
		info, err := server.Control().InfoMap(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		for _, verb := range []string{"eval", "evalsha"} {
			var calls, refused int
			stat := info["Commandstats"]["cmdstat_"+verb]
			_, _ = fmt.Sscanf(stat, "calls=%d,", &calls)
			if _, after, ok := strings.Cut(stat, "failed_calls="); ok {
				_, _ = fmt.Sscanf(after, "%d", &refused) // NOSCRIPT: the client sends the script again
			}
			sum += calls - refused
		}
	}
	return sum
}

// listeners counts the clients that wait for a name.
func listeners(t testing.TB, rdb redis.UniversalClient, name string) int64 {
	t.Helper()
	channel := channelOf(name)
	n, err := rdb.PubSubNumSub(t.Context(), channel).Result()
	require.NoError(t, err)
	return n[channel]
}

func channelOf(name string) string { return "redisson_lock__channel:{" + name + "}" }
