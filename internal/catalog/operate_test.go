package catalog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/semaphore"
)

func TestReleaseEndsOnlyWhatTheIdHas(t *testing.T) {
	t.Parallel()
	c, locks := newCatalog(t, redistest.Start(t).Client(t))
	hold := acquire(t, locks.Mutex("door"))
	permit, err := locks.Semaphore("door", 3).Acquire(t.Context(), 2)
	require.NoError(t, err)

	_, err = c.Release(t.Context(), "door", "")
	require.ErrorIs(t, err, lockerr.ErrConfig)
	released, err := c.Release(t.Context(), "door", "somebody:1")
	require.NoError(t, err)
	require.False(t, released)
	s := c.State(t.Context(), "door", 0)
	require.True(t, s.Lock.Held())

	released, err = c.Release(t.Context(), "door", permit.ID()) // while somebody else has the mutex
	require.NoError(t, err)
	require.True(t, released)
	s = c.State(t.Context(), "door", 0)
	require.Zero(t, s.Permits.InUse)
	require.Equal(t, hold.ID(), s.Lock.Holder)

	released, err = c.Release(t.Context(), "door", hold.ID())
	require.NoError(t, err)
	require.True(t, released)
	s = c.State(t.Context(), "door", 0)
	require.False(t, s.Lock.Held())
}

func TestRemoveWaiterAndResize(t *testing.T) {
	t.Parallel()
	c, locks := newCatalog(t, redistest.Start(t).Client(t))
	acquire(t, locks.Mutex("door"))
	wait(t, locks, "door")
	waiter := c.State(t.Context(), "door", 1).Waiters[0].ID
	for _, expected := range []bool{true, false} {
		removed, err := c.RemoveWaiter(t.Context(), "door", waiter)
		require.NoError(t, err)
		require.Equal(t, expected, removed)
	}

	before, err := c.Resize(t.Context(), "render", 5)
	require.NoError(t, err)
	require.Zero(t, before, "nobody has used it")
	permit, err := locks.Semaphore("render", 3).Acquire(t.Context(), 1)
	require.NoError(t, err)
	defer func() { require.NoError(t, permit.Release(t.Context())) }()
	for _, expected := range []int{3, 5} {
		before, err = c.Resize(t.Context(), "render", 5)
		require.NoError(t, err)
		require.Equal(t, expected, before)
	}
	require.Equal(t, 3, c.State(t.Context(), "render", 0).Permits.Declared, "what programs pass")
}

func TestRowsOfAName(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	both := Entry{"x", Mutex | Semaphore}
	s := State{
		Entry: both, Lock: lock.Info{Holder: "a:1", Description: "host", Since: now, Remaining: -1}, Subscribers: 2,
		Permits: semaphore.Info{Limit: 2, InUse: 3, Waiting: 4, Holders: []semaphore.Holder{
			{ID: "b:1", Since: now.Add(time.Second), Remaining: 5}, {ID: "b:2", Since: now, Remaining: 7}, {ID: "b:3", Remaining: 6},
		}},
		PermitWaiters: []lock.Waiter{{Since: now}},
	}
	rows := s.Rows()
	require.Equal(t, []Row{
		{Name: "x", Kind: Mutex, Held: true, Holder: "a:1", Description: "host", Since: now, Lease: -1, Listeners: 2},
		{Name: "x", Kind: Semaphore, Held: true, InUse: 3, Limit: 2, Since: now, Lease: 5, Waiting: 4, Oldest: now},
	}, rows)
	require.True(t, rows[1].AtLimit())
	require.False(t, rows[0].AtLimit())
	require.Len(t, (&State{Entry: both}).Rows(), 1, "a free mutex beside a semaphore")
	require.Len(t, (&State{Entry: Entry{"x", Mutex}}).Rows(), 1)
	s.Err = lockerr.ErrRefused
	require.Equal(t, []Row{{Name: "x", Kind: both.Kinds, Err: lockerr.ErrRefused}}, s.Rows())
}
