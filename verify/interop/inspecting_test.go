package interop_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/reentrant"
)

// refusedInfo inspects a lock that somebody holds.
func refusedInfo(t testing.TB, m *reentrant.Mutex) lock.Info {
	t.Helper()
	info, err := m.Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, info.Held())
	return info
}

// Java reports a lock of Go as locked, with the right remaining lease. It reports that no thread of
// Java holds it.
func TestJavaReportsTrulyAboutGo(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	admin := r.open(t, server.Addr()).thread("admin")
	m := locksOn(t, server.Client(t), redlatch.WithLease(time.Minute)).Mutex(redistest.Name(t))
	require.False(t, admin.is("locked", m.Name()))
	chain := redlatch.WithOwner(t.Context())
	outer := mustLock(t, chain, m)
	inner := mustLock(t, chain, m)
	require.True(t, admin.is("locked", m.Name()))
	require.False(t, admin.is("mine", m.Name()))
	require.Zero(t, admin.number("holds", "lock", m.Name()))
	left := admin.number("ttl", "lock", m.Name())
	require.Positive(t, left)
	require.LessOrEqual(t, left, time.Minute.Milliseconds())
	unlock(t, inner)
	require.True(t, admin.is("locked", m.Name()))
	unlock(t, outer)
	require.False(t, admin.is("locked", m.Name()))
	require.EqualValues(t, -2, admin.number("ttl", "lock", m.Name()))
}

// forceUnlock in Java ends a hold of Go. The holder is notified, and its Unlock returns a loss and
// harms nobody. Java's message wakes up a Go waiter.
func TestForceUnlockInJavaIsNotifiedInGo(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Start(t)
	admin := r.open(t, server.Addr()).thread("admin")
	m := locksOn(t, server.Client(t), redlatch.WithLease(10*time.Second)).Mutex(redistest.Name(t))
	h := mustLock(t, t.Context(), m)
	next := locksOn(t, server.Client(t), redlatch.WithLease(never), redlatch.WithPollInterval(never)).Mutex(m.Name())
	refused(t, next)
	before := scripts(t, server)
	got := waits(t, next)
	asleep(t, before, func() bool { return listeners(t, server.Control(), m.Name()) == 1 }, server)

	require.Equal(t, "true", admin.must("force", "lock", m.Name()))
	won := granted(t, got)
	within(t, h.Lost(), "the Go holder is notified")
	require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrLost)
	require.Greater(t, won.hold.Fence(), h.Fence())
	require.Equal(t, won.hold.ID(), refusedInfo(t, m).Holder)
	unlock(t, won.hold)
	require.Equal(t, "false", admin.must("force", "lock", m.Name()), "nobody had it")
}

// Inspection in Go names Java's client and thread, its holds, lease and token.
func TestGoReportsTrulyAboutJava(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	holder := r.open(t, server.Addr()).thread("holds")
	m := locksOn(t, server.Client(t)).Mutex(redistest.Name(t))
	token := holder.number("fenced.lock", m.Name())
	info := refusedInfo(t, m)
	require.Equal(t, holder.must("me"), info.Holder)
	require.Equal(t, 1, info.Holds)
	require.Equal(t, token, info.Fence)
	require.Zero(t, info.Since, "Java counts from one: that is no time")
	require.Empty(t, info.Description)
	require.Positive(t, info.Remaining)
	require.LessOrEqual(t, info.Remaining, 30*time.Second)

	holder.lock(m.Name())
	require.Equal(t, 2, refusedInfo(t, m).Holds)
	busy := refused(t, m)
	require.Equal(t, holder.must("me"), busy.Holder)
	require.Positive(t, busy.Remaining)
	holder.unlock(m.Name())
	holder.unlock(m.Name())
	info, err := m.Inspect(t.Context())
	require.NoError(t, err)
	require.False(t, info.Held())
}

// ForceRelease in Go ends a hold of Java. The message wakes up a Java waiter. The unlock of the
// former holder throws and harms nobody.
func TestForceReleaseInGoIsNotifiedInJava(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Start(t)
	service := r.open(t, server.Addr())
	holder, next := service.thread("holds"), service.thread("waits")
	m := locksOn(t, server.Client(t)).Mutex(redistest.Name(t))
	holder.leased(m.Name(), never)
	before := scripts(t, server)
	got := next.begin("lock", "lock", m.Name(), millis(never))
	asleep(t, before, func() bool { return listeners(t, server.Control(), m.Name()) == 1 }, server)

	_, err := m.ForceRelease(t.Context(), "somebody:1")
	require.ErrorIs(t, err, redlatch.ErrNotAcquired, "another than the expected one has it")
	was, err := m.ForceRelease(t.Context(), holder.must("me"))
	require.NoError(t, err)
	require.Equal(t, holder.must("me"), was)
	require.Empty(t, next.await(got, "is woken").err)
	require.False(t, holder.is("mine", m.Name()))
	require.Contains(t, holder.do("unlock", "lock", m.Name()).err, "IllegalMonitorStateException")
	require.Equal(t, next.must("me"), refusedInfo(t, m).Holder)
	next.unlock(m.Name())
}
