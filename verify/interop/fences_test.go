package interop_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func tokenOf(name string) string { return "redisson_lock_token:{" + name + "}" }

// Whichever side takes the lock, its token is larger than all earlier ones. That also holds if Java
// had used the lock alone before Go came.
func TestTokensOnlyGrowAcrossLanguages(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	service := r.open(t, server.Addr()).thread("a")
	m := locksOn(t, server.Client(t)).Mutex(redistest.Name(t))
	last := int64(0)
	grows := func(token int64, who string) {
		t.Helper()
		require.Greater(t, token, last, who)
		last = token
	}
	takeInJava := func() {
		t.Helper()
		grows(service.number("fenced.lock", m.Name()), "Java")
		require.Equal(t, last, service.number("fenced.token", m.Name()))
		service.unlock(m.Name())
	}
	takeInGo := func() {
		t.Helper()
		h := mustLock(t, t.Context(), m)
		grows(h.Fence(), "Go")
		require.Equal(t, h.Fence(), service.number("fenced.token", m.Name()), "Java sees the token of Go")
		unlock(t, h)
	}
	for range 3 {
		takeInJava()
	}
	require.EqualValues(t, 3, last, "Java counts from one")
	for range 5 {
		takeInGo()
		takeInGo()
		takeInJava()
		takeInJava()
	}
}

// Java counts re-entries too, but Go does not. Both stay lower than the next grant.
func TestReentryKeepsTokensGrowing(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	service := r.open(t, server.Addr()).thread("a")
	m := locksOn(t, server.Client(t)).Mutex(redistest.Name(t))

	first := service.number("fenced.lock", m.Name())
	again := service.number("fenced.lock", m.Name())
	require.Greater(t, again, first)
	service.unlock(m.Name())
	service.unlock(m.Name())

	chain := redlatch.WithOwner(t.Context())
	outer := mustLock(t, chain, m)
	inner := mustLock(t, chain, m)
	require.Greater(t, outer.Fence(), again)
	require.Equal(t, outer.Fence(), inner.Fence())
	unlock(t, inner)
	unlock(t, outer)
	require.Greater(t, service.number("fenced.lock", m.Name()), outer.Fence())
}

// The token that Java made does not expire. A Go client whose own fences would expire does not
// change that, because Java would begin at one again.
func TestGoNeverGivesJavasTokenAnEnd(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	rdb := server.Client(t)
	service := r.open(t, server.Addr()).thread("a")
	m := locksOn(t, rdb, redlatch.WithFenceRetention(time.Second)).Mutex(redistest.Name(t))

	token := service.number("fenced.lock", m.Name())
	service.unlock(m.Name())
	for range 2 {
		h := mustLock(t, t.Context(), m)
		require.Greater(t, h.Fence(), token)
		unlock(t, h)
		require.Equal(t, time.Duration(-1), rdb.PTTL(t.Context(), tokenOf(m.Name())).Val(), "the token has an end")
		next := service.number("fenced.lock", m.Name())
		require.Greater(t, next, h.Fence())
		token = next
		service.unlock(m.Name())
	}
}

// If Go takes the lock first, WithFenceRetention(0) keeps Java's tokens growing, because the token
// never expires then.
func TestRetentionOfZeroKeepsJavasTokensGrowing(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	rdb := server.Client(t)
	service := r.open(t, server.Addr()).thread("a")
	m := locksOn(t, rdb, redlatch.WithFenceRetention(0)).Mutex(redistest.Name(t))
	h := mustLock(t, t.Context(), m)
	unlock(t, h)
	require.Equal(t, time.Duration(-1), rdb.PTTL(t.Context(), tokenOf(m.Name())).Val())
	require.Greater(t, service.number("fenced.lock", m.Name()), h.Fence())
	require.Equal(t, time.Duration(-1), rdb.PTTL(t.Context(), tokenOf(m.Name())).Val())
}

// The documentation warns of this. If Go made a token that expires, Java does not extend it, and
// begins at one after it has expired. Nevertheless the next fence of Go is larger than all of them.
func TestRetentionAlsoEndsJavasTokens(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	rdb := server.Client(t)
	service := r.open(t, server.Addr()).thread("a")
	m := locksOn(t, rdb, redlatch.WithFenceRetention(time.Second)).Mutex(redistest.Name(t), redlatch.WithLease(time.Second))
	h := mustLock(t, t.Context(), m)
	unlock(t, h)
	require.Eventually(t, func() bool { return rdb.Exists(t.Context(), tokenOf(m.Name())).Val() == 0 }, guard, time.Millisecond)
	require.EqualValues(t, 1, service.number("fenced.lock", m.Name()))
	service.unlock(m.Name())
	next := mustLock(t, t.Context(), m)
	require.Greater(t, next.Fence(), h.Fence())
	unlock(t, next)
}

// Tokens of Go are microseconds. Java reads and counts them exactly, to the last digit.
func TestJavaCountsOnFromGoToTheLastDigit(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	rdb := server.Client(t)
	service := r.open(t, server.Addr()).thread("a")
	m := locksOn(t, rdb).Mutex(redistest.Name(t))
	h := mustLock(t, t.Context(), m)
	require.Equal(t, strconv.FormatInt(h.Fence(), 10), rdb.Get(t.Context(), tokenOf(m.Name())).Val())
	unlock(t, h)
	require.Equal(t, h.Fence()+1, service.number("fenced.lock", m.Name()))
	require.Equal(t, h.Fence()+1, refusedInfo(t, m).Fence)
}
