package interop_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// A NameMapper that adds a prefix is the same as WithPrefix, for the lock, its token and its
// messages. Redisson's codec plays no part.
func TestNameMapperAndPrefixAreTheSame(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Start(t)
	service := r.open(t, server.Addr(), redissonOptions{prefix: "app:"})
	holder, next := service.thread("holds"), service.thread("waits")
	locks := locksOn(t, server.Client(t), redlatch.WithPrefix("app:"), redlatch.WithLease(never))
	m := locks.Mutex("door")

	token := holder.number("fenced.lock", "door")
	require.Equal(t, holder.must("me"), refused(t, m).Holder)
	holder.unlock("door")
	h := mustLock(t, t.Context(), m)
	require.Greater(t, h.Fence(), token)
	require.Equal(t, h.Fence(), holder.number("fenced.token", "door"))
	before := scripts(t, server)
	got := next.begin("lock", "lock", "door", millis(never))
	asleep(t, before, func() bool { return listeners(t, server.Control(), "app:door") == 1 }, server)
	unlock(t, h)
	require.Empty(t, next.await(got, "is woken").err)
	next.unlock("door")
}

// Redisson locks names that this library refuses.
func TestJavaLocksNamesThatGoRefuses(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Start(t)
	service := r.open(t, server.Addr()).thread("a")
	locks := locksOn(t, server.Client(t))
	for _, name := range []string{"bell\x07", strings.Repeat("x", 513), "odd{brace", "odd}brace"} {
		require.True(t, service.tries(name), "%q", name)
		service.unlock(name)
		_, err := locks.Mutex(name).TryLock(t.Context())
		var config *redlatch.ConfigError
		require.ErrorAs(t, err, &config, "%q", name)
	}
}

// The names door and {door} share token and channel in both languages. They are two locks in both.
func TestANameInBracesIsAnotherLockWithTheSameToken(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Start(t)
	service := r.open(t, server.Addr())
	a, b := service.thread("a"), service.thread("b")
	locks := locksOn(t, server.Client(t))

	first := a.number("fenced.lock", "door")
	require.Greater(t, b.number("fenced.lock", "{door}"), first)
	a.unlock("door")
	b.unlock("{door}")

	plain := mustLock(t, t.Context(), locks.Mutex("door"))
	braces := mustLock(t, t.Context(), locks.Mutex("{door}"))
	require.Greater(t, braces.Fence(), plain.Fence())
	require.Equal(t, braces.Fence(), a.number("fenced.token", "door"), "one token for both")
	require.False(t, a.tries("door"))
	unlock(t, plain)
	require.True(t, a.tries("door"))
	require.False(t, b.tries("{door}"))
	unlock(t, braces)
	a.unlock("door")
}

// A Redisson client that shuts down leaves its locks behind until their leases end. Close of this
// library unlocks.
func TestShutdownOfJavaDoesNotUnlockAndCloseOfGoDoes(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Start(t)
	service := r.open(t, server.Addr(), redissonOptions{watchdog: shortLease}).thread("a")
	locks := locksOn(t, server.Client(t), redlatch.WithLease(never), redlatch.WithPollInterval(never))
	leased, renewed := locks.Mutex(redistest.Name(t)), locks.Mutex(redistest.Name(t))
	service.leased(leased.Name(), never)
	service.lock(renewed.Name())
	me := service.must("me")
	service.must("close")
	require.Equal(t, me, refused(t, leased).Holder)
	_ = granted(t, waits(t, renewed)) // nobody renews the lease any more

	other := r.open(t, server.Addr()).thread("a")
	require.False(t, other.tries(renewed.Name()))
	require.NoError(t, locks.Close(context.Background()))
	require.True(t, other.tries(renewed.Name()))
	other.unlock(renewed.Name())
}

// RFencedLock has no delete of its own. A cast to RObject reaches it, and then Java's tokens start
// again, also if Go made the last one. The next fence of Go is larger than all before.
func TestDeletingAFencedLockStartsJavasTokensAgain(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Start(t)
	service := r.open(t, server.Addr()).thread("a")
	m := locksOn(t, server.Client(t), redlatch.WithFenceRetention(0)).Mutex(redistest.Name(t))
	for range 2 {
		require.EqualValues(t, 1, service.number("fenced.lock", m.Name()))
		service.unlock(m.Name())
		h := mustLock(t, t.Context(), m)
		unlock(t, h)
		next := mustLock(t, t.Context(), m)
		require.Greater(t, next.Fence(), h.Fence())
		unlock(t, next)
		require.Equal(t, "true", service.must("fenced.delete", m.Name()))
	}
}

// If the ACL denies Go to publish, nobody wakes up a Java waiter. It gets the lock when the lease
// that it saw ends.
func TestWithoutPublishJavaWaitsForTheLease(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Start(t)
	require.NoError(t, server.Control().Do(t.Context(), "ACL", "SETUSER", "mute", "on", "nopass", "~*", "&*", "+@all", "-publish").Err())
	rdb := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "mute", "any" })
	next := r.open(t, server.Addr()).thread("waits")
	m := locksOn(t, rdb, redlatch.WithLease(killLease)).Mutex(redistest.Name(t))
	h := mustLock(t, t.Context(), m)
	sub := server.Control().Subscribe(t.Context(), channelOf(m.Name()))
	t.Cleanup(func() { _ = sub.Close() })
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	before := scripts(t, server)
	got := next.waits(m.Name())
	asleep(t, before, func() bool { return listeners(t, server.Control(), m.Name()) == 2 }, server)
	unlock(t, h)
	require.Empty(t, next.await(got, "gets the lock when the lease it saw is over").err)
	require.NoError(t, server.Control().Publish(t.Context(), channelOf(m.Name()), "mark").Err())
	message, err := sub.ReceiveMessage(t.Context())
	require.NoError(t, err)
	require.Equal(t, "mark", message.Payload, "a message has woken Java up")
	next.unlock(m.Name())
}
