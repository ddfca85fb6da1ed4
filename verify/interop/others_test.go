package interop_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/reentrant"
)

// Spin, non-reentrant and multi locks of Java use the same hash, so Go and they exclude each other.
// None of their waiters needs a message that Go does not send. If they send no message, a Go waiter
// gets the lock by a poll.
func TestOtherLocksOnTheSameHashExclude(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	for _, kind := range []string{"spin", "nonreentrant", "multi", "fenced", "fair"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			service := r.open(t, server.Addr())
			holder, tries := service.thread("holds"), service.thread("tries")
			m := locksOn(t, server.Client(t), redlatch.WithPollInterval(50*time.Millisecond)).Mutex(redistest.Name(t))
			holder.must("lock", kind, m.Name(), "-1")
			require.Equal(t, holder.must("me"), refused(t, m).Holder)
			got := waits(t, m)
			holder.must("unlock", kind, m.Name())
			h := granted(t, got).hold
			require.Equal(t, "false", tries.must("try", kind, m.Name()), "both have it")
			unlock(t, h)
			require.Equal(t, "true", tries.must("try", kind, m.Name()))
			tries.must("unlock", kind, m.Name())
		})
	}
}

// Java's fair lock and Go exclude each other, but Go does not know its queue. Go takes a free lock
// although Java threads wait in line, and does not wake them up. They get the lock when the lease
// that they saw ends, and none of them is lost.
func TestFairLockOfJavaExcludesButGoDoesNotQueue(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Start(t)
	queued := r.open(t, server.Addr()).thread("queued")
	m := locksOn(t, server.Client(t), redlatch.WithLease(5*time.Second)).Mutex(redistest.Name(t))
	h := mustLock(t, t.Context(), m)
	before := scripts(t, server)
	got := queued.begin("lock", "fair", m.Name(), "-1")
	asleep(t, before, func() bool {
		return len(server.Control().PubSubChannels(t.Context(), channelOf(m.Name())+":*").Val()) == 1
	}, server)
	unlock(t, h)
	again, err := m.TryLock(t.Context()) // Java sleeps for the rest of five seconds
	require.NoError(t, err, "Go takes a free lock past Java's queue")
	require.Empty(t, got)
	unlock(t, again)
	require.Empty(t, queued.await(got, "gets the lock when the lease it saw is over").err)
	require.Equal(t, queued.must("me"), refused(t, m).Holder)
	queued.must("unlock", "fair", m.Name())
}

// Semaphores, permits and latches of Java are numbers. Go refuses the name of such a number, and
// does not change it.
func TestGoRefusesAKeyThatIsACounterOfJava(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	rdb := server.Client(t)
	for _, kind := range []string{"semaphore", "permits", "latch"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			service := r.open(t, server.Addr()).thread("a")
			m := locksOn(t, rdb).Mutex(redistest.Name(t))
			require.Equal(t, "true", service.must(kind+".set", m.Name(), "2"))
			refusesWrongType(t, m)
			require.Equal(t, "2", rdb.Get(t.Context(), m.Name()).Val(), "Go has changed Java's counter")
		})
	}
}

// The reverse: they throw on the name of a lock that Go has, and do not change it.
func TestJavasCountersRefuseALockOfGo(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	for kind, verbs := range map[string][]string{
		"semaphore": {"semaphore.set", "semaphore.try", "semaphore.release"},
		"permits":   {"permits.set", "permits.try"},
		"latch":     {"latch.down"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			service := r.open(t, server.Addr()).thread("a")
			m := locksOn(t, server.Client(t)).Mutex(redistest.Name(t))
			h := mustLock(t, t.Context(), m)
			for _, verb := range verbs {
				require.Contains(t, service.do(verb, m.Name(), "2").err, "WRONGTYPE", verb)
			}
			require.Equal(t, h.ID(), refusedInfo(t, m).Holder)
			unlock(t, h)
		})
	}
	t.Run("latch.set", func(t *testing.T) {
		t.Parallel()
		service := r.open(t, server.Addr()).thread("a")
		m := locksOn(t, server.Client(t)).Mutex(redistest.Name(t))
		h := mustLock(t, t.Context(), m)
		require.Equal(t, "false", service.must("latch.set", m.Name(), "2"))
		unlock(t, h)
	})
}

// A read or write lock that Java holds is no mutex. Go refuses it, and does not change it. When it
// is free, the name is a mutex again.
func TestReadWriteLockOfJavaIsRefusedByGo(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	for _, kind := range []string{"read", "write"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			holder := r.open(t, server.Addr()).thread("holds")
			m := locksOn(t, server.Client(t)).Mutex(redistest.Name(t))
			holder.must("lock", kind, m.Name(), "-1")
			refusesWrongType(t, m)
			require.Equal(t, "true", holder.must("mine", kind, m.Name()))
			holder.must("unlock", kind, m.Name())
			unlock(t, mustLock(t, t.Context(), m))
		})
	}
}

// refusesWrongType asserts that no use of m takes the key for a mutex.
func refusesWrongType(t *testing.T, m *reentrant.Mutex) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	_, locked := m.Lock(ctx)
	_, tried := m.TryLock(t.Context())
	_, inspected := m.Inspect(t.Context())
	_, forced := m.ForceRelease(t.Context(), "")
	for _, err := range []error{locked, tried, inspected, forced} {
		require.ErrorIs(t, err, redlatch.ErrRefused)
		require.ErrorContains(t, err, "WRONGTYPE")
	}
}

// Nobody refuses this combination, and the documentation warns of it. Redisson's scripts for
// read-write locks look for a mark of their own in the hash. So they take a lock of Go, or an RLock
// of Java, for free. The effect of the first unlock depends on who unlocks.
func TestReadWriteLockOfJavaIgnoresWhoHasTheLock(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	for _, kind := range []string{"read", "write"} {
		t.Run(kind+", Go unlocks first", func(t *testing.T) {
			t.Parallel()
			service := r.open(t, server.Addr())
			plain, rw := service.thread("plain"), service.thread("rw")
			m := locksOn(t, server.Client(t)).Mutex(redistest.Name(t))
			h := mustLock(t, t.Context(), m)
			require.Equal(t, "true", rw.must("try", kind, m.Name()), "both have it")
			unlock(t, h)
			unlock(t, mustLock(t, t.Context(), m)) // the name is free, although Java has not unlocked
			require.Contains(t, rw.do("unlock", kind, m.Name()).err, "IllegalMonitorStateException")

			plain.lock(m.Name())
			require.Equal(t, "true", rw.must("try", kind, m.Name()), "Redisson alone does no better")
			plain.unlock(m.Name())
			require.Contains(t, rw.do("unlock", kind, m.Name()).err, "IllegalMonitorStateException")
		})
	}
	t.Run("read, Java unlocks first", func(t *testing.T) {
		t.Parallel()
		rw := r.open(t, server.Addr()).thread("rw")
		rdb := server.Client(t)
		m := locksOn(t, rdb, redlatch.WithRenewInterval(100*time.Millisecond)).Mutex(redistest.Name(t))
		other := locksOn(t, rdb).Mutex(m.Name())
		h := mustLock(t, t.Context(), m)
		require.Equal(t, "true", rw.must("try", "read", m.Name()), "both have it")
		rw.must("unlock", "read", m.Name())
		next := mustLock(t, t.Context(), other) // the hold of Go is gone too
		within(t, h.Lost(), "Go learns of its loss")
		require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrLost)
		unlock(t, next)
	})
	t.Run("write, Java unlocks first", func(t *testing.T) {
		t.Parallel()
		service := r.open(t, server.Addr())
		rw, reader := service.thread("rw"), service.thread("reads")
		rdb := server.Client(t)
		m := locksOn(t, rdb, redlatch.WithRenewInterval(100*time.Millisecond)).Mutex(redistest.Name(t))
		other := locksOn(t, rdb).Mutex(m.Name())
		h := mustLock(t, t.Context(), m)
		require.Equal(t, "true", rw.must("try", "write", m.Name()), "both have it")
		rw.must("unlock", "write", m.Name())
		require.Equal(t, "read", rdb.HGet(t.Context(), m.Name(), "mode").Val(), "Redisson's mark stays")
		require.Equal(t, "1", rdb.HGet(t.Context(), m.Name(), h.ID()).Val(), "Go has the lock")
		refusesWrongType(t, other)
		require.Equal(t, "true", reader.must("try", "read", m.Name()), "a reader gets in while Go has the mutex")
		renewed := h.TrustedUntil()
		require.Eventually(t, func() bool { return h.TrustedUntil().After(renewed) }, guard, time.Millisecond, "Go renews its hold")
		require.True(t, h.Trusted())
		unlock(t, h) // this ends the hold of the reader too
		unlock(t, mustLock(t, t.Context(), other))
		require.Contains(t, reader.do("unlock", "read", m.Name()).err, "IllegalMonitorStateException")
	})
}
