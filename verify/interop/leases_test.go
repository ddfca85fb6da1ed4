package interop_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// shortLease is a lease that ends within a test.
const shortLease = 1500 * time.Millisecond

// renewals waits until the lease of a name has been extended n times, while other tries to get the
// lock. With a renewal each third of the lease, four are more than one lease.
func renewals(t testing.TB, rdb redis.UniversalClient, name string, n int, other func()) {
	t.Helper()
	last := time.Duration(0)
	require.Eventually(t, func() bool {
		other()
		ttl, err := rdb.PTTL(t.Context(), name).Result()
		require.NoError(t, err)
		require.Positive(t, ttl, "the lease has ended")
		if ttl > last && last > 0 {
			n--
		}
		last = ttl
		return n <= 0
	}, guard, 20*time.Millisecond, "the lease is renewed")
}

// The watchdog of Java keeps Go out for as long as Java holds the lock.
func TestWatchdogOfJavaHoldsAgainstGo(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	rdb := server.Client(t)
	holder := r.open(t, server.Addr(), redissonOptions{watchdog: shortLease}).thread("holds")
	m := locksOn(t, rdb).Mutex(redistest.Name(t))
	holder.lock(m.Name())
	got := waits(t, m)
	renewals(t, rdb, m.Name(), 4, func() { refused(t, m) })
	require.Empty(t, got)
	holder.unlock(m.Name())
	unlock(t, granted(t, got).hold)
}

// The watchdog of Go keeps Java out for as long as Go holds the lock.
func TestWatchdogOfGoHoldsAgainstJava(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	rdb := server.Client(t)
	service := r.open(t, server.Addr())
	tries, waits := service.thread("tries"), service.thread("waits")
	m := locksOn(t, rdb, redlatch.WithLease(shortLease)).Mutex(redistest.Name(t))
	h := mustLock(t, t.Context(), m)
	got := waits.waits(m.Name())
	renewals(t, rdb, m.Name(), 4, func() { require.False(t, tries.tries(m.Name())) })
	require.Empty(t, got)
	require.True(t, h.Trusted())
	unlock(t, h)
	require.Empty(t, waits.await(got, "gets the lock").err)
	waits.unlock(m.Name())
}

// A lease in Java ends without a message. The Go waiter gets the lock then, although its poll bound
// is far longer. Java's late unlock reports the loss.
func TestLeaseOfJavaEndsForGo(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	holder := r.open(t, server.Addr()).thread("holds")
	m := locksOn(t, server.Client(t), redlatch.WithPollInterval(never)).Mutex(redistest.Name(t))
	holder.leased(m.Name(), shortLease)
	h := granted(t, waits(t, m)).hold
	require.False(t, holder.is("mine", m.Name()))
	require.Contains(t, holder.do("unlock", "lock", m.Name()).err, "IllegalMonitorStateException")
	require.True(t, holder.is("locked", m.Name()), "the late unlock has touched what Go holds")
	unlock(t, h)
}

// A lease in Go that is not renewed ends for Java, and Go's late unlock reports the loss.
func TestLeaseOfGoEndsForJava(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	next := r.open(t, server.Addr()).thread("next")
	m := locksOn(t, server.Client(t), redlatch.WithLease(shortLease), redlatch.WithoutRenewal()).Mutex(redistest.Name(t))
	h := mustLock(t, t.Context(), m)
	require.Empty(t, next.await(next.waits(m.Name()), "gets the lock").err)
	within(t, h.Lost(), "Go learns of its loss")
	require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrLost)
	require.EqualValues(t, 1, next.number("holds", "lock", m.Name()), "the late unlock has touched what Java holds")
	next.unlock(m.Name())
}
