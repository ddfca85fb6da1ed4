package interop_test

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// guard is how long a test waits for something that must happen. Only a failure takes all of it.
const guard = time.Minute

// never is longer than any test. If nothing shorter bounds a wait, a message ends it, or the test
// fails at its guard.
const never = time.Hour

// redisson is one Redisson client with one id, like one Java service.
type redisson struct {
	t    testing.TB
	jvm  *jvm
	name string
}

// thread is one thread of a Redisson client, with locks of its own.
type thread struct {
	*redisson
	name string
}

type redissonOptions struct {
	mode     string // single (the default), cluster or sentinel
	sharded  string // AUTO (the default), ON or OFF
	watchdog time.Duration
	prefix   string // a NameMapper that adds it, and a codec other than the default
}

var clients atomic.Int64

// open makes a Redisson client, and closes it when the test ends.
func (j *jvm) open(t testing.TB, addr string, options ...redissonOptions) *redisson {
	t.Helper()
	o := redissonOptions{}
	if len(options) > 0 {
		o = options[0]
	}
	mode, sharded := or(o.mode, "single"), or(o.sharded, "AUTO")
	if o.watchdog == 0 {
		o.watchdog = 30 * time.Second
	}
	r := &redisson{t: t, jvm: j, name: "client" + strconv.FormatInt(clients.Add(1), 10)}
	a := r.thread("opens")
	a.must("open", mode, "redis://"+addr, millis(o.watchdog), sharded, o.prefix)
	t.Cleanup(func() {
		select {
		case <-j.dead:
		case <-a.begin("close"):
		case <-time.After(guard):
			t.Error("Redisson did not close")
		}
	})
	return r
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (r *redisson) thread(name string) *thread {
	return &thread{redisson: r, name: r.name + "." + name}
}

// begin starts a call, which may block.
func (a *thread) begin(verb string, args ...string) <-chan reply {
	return a.jvm.send(append([]string{a.name, a.redisson.name, verb}, args...)...)
}

// await waits for the answer to a call.
func (a *thread) await(answer <-chan reply, what string) reply {
	a.t.Helper()
	select {
	case r := <-answer:
		return r
	case <-a.jvm.dead:
		require.FailNow(a.t, "Java died", "at %s: %s", what, a.jvm.lastWords())
	case <-time.After(guard):
		require.FailNow(a.t, "did not happen: Java "+what)
	}
	return reply{}
}

func (a *thread) do(verb string, args ...string) reply {
	a.t.Helper()
	return a.await(a.begin(verb, args...), verb+" "+strings.Join(args, " "))
}

// must makes a call that must not fail, and returns its value.
func (a *thread) must(verb string, args ...string) string {
	a.t.Helper()
	r := a.do(verb, args...)
	require.Empty(a.t, r.err, "%s %s", verb, args)
	return r.value
}

func (a *thread) number(verb string, args ...string) int64 {
	a.t.Helper()
	n, err := strconv.ParseInt(a.must(verb, args...), 10, 64)
	require.NoError(a.t, err)
	return n
}

// lock locks an RLock under the watchdog.
func (a *thread) lock(name string) {
	a.t.Helper()
	a.must("lock", "lock", name, "-1")
}

// leased locks an RLock for the given lease.
func (a *thread) leased(name string, lease time.Duration) {
	a.t.Helper()
	a.must("lock", "lock", name, millis(lease))
}

func (a *thread) unlock(name string) {
	a.t.Helper()
	a.must("unlock", "lock", name)
}

// tries reports whether a tryLock without waiting got the lock.
func (a *thread) tries(name string) bool {
	a.t.Helper()
	return a.must("try", "lock", name) == "true"
}

// is calls a predicate of an RLock.
func (a *thread) is(verb, name string) bool {
	a.t.Helper()
	return a.must(verb, "lock", name) == "true"
}

// waits starts a lock() under the watchdog that should block.
func (a *thread) waits(name string) <-chan reply { return a.begin("lock", "lock", name, "-1") }
