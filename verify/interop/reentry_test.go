package interop_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// A Java thread that has locked twice keeps Go out until it has unlocked twice.
func TestReentryInJavaIsNotDisturbedByGo(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	holder := r.open(t, server.Addr()).thread("holds")
	m := locksOn(t, server.Client(t)).Mutex(redistest.Name(t))

	holder.lock(m.Name())
	holder.lock(m.Name())
	got := waits(t, m)
	require.Equal(t, holder.must("me"), refused(t, m).Holder)
	require.EqualValues(t, 2, holder.number("holds", "lock", m.Name()))
	holder.unlock(m.Name())
	require.Equal(t, holder.must("me"), refused(t, m).Holder)
	require.EqualValues(t, 1, holder.number("holds", "lock", m.Name()))
	require.Empty(t, got, "Go got the lock that Java has")
	holder.unlock(m.Name())
	unlock(t, granted(t, got).hold)
}

// A Go chain that has locked twice keeps Java out until it has unlocked twice, in whichever order.
func TestReentryInGoIsNotDisturbedByJava(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	service := r.open(t, server.Addr())
	tries, waits := service.thread("tries"), service.thread("waits")
	m := locksOn(t, server.Client(t)).Mutex(redistest.Name(t))

	chain := redlatch.WithOwner(t.Context())
	outer := mustLock(t, chain, m)
	inner := mustLock(t, chain, m)
	got := waits.waits(m.Name())
	require.False(t, tries.tries(m.Name()))
	unlock(t, outer)
	require.False(t, tries.tries(m.Name()))
	require.Empty(t, got, "Java got the lock that Go has")
	require.Contains(t, tries.do("unlock", "lock", m.Name()).err, "IllegalMonitorStateException", "Java unlocks what Go has")
	unlock(t, inner)
	require.Empty(t, waits.await(got, "gets the lock").err)
	require.Equal(t, waits.must("me"), refused(t, m).Holder)
	waits.unlock(m.Name())
}
