package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lua"
)

// stopped is a server whose clock stands still.
func stopped(t *testing.T) (*backend, time.Time) {
	t.Helper()
	m, now := miniredis.RunT(t), time.UnixMilli(1_800_000_000_000)
	m.SetTime(now)
	return &backend{rdb: dial(t, m.Addr(), 3, nil), addr: m.Addr(), mini: m}, now
}

func TestACommandIsVoidFromTheMicrosecondAfterItsEnd(t *testing.T) {
	t.Parallel()
	b, now := stopped(t)
	for name, call := range map[string]func(end lua.Time) (lua.Status, error){
		"acquire": func(end lua.Time) (lua.Status, error) {
			r, err := lua.Acquire(t.Context(), b.rdb, lua.AcquireParams{LockKey: "l", FenceKey: "f", QueueKey: "q", Acquisition: "a:1",
				Lease: hour, Holds: 1, VoidAfter: end})
			return r.Status, err
		},
		"transfer": func(end lua.Time) (lua.Status, error) {
			r, err := lua.Transfer(t.Context(), b.rdb, lua.TransferParams{LockKey: "l", FenceKey: "f", From: "a:1", To: "a:2", Lease: hour, VoidAfter: end})
			return r.Status, err
		},
		"join": func(end lua.Time) (lua.Status, error) {
			r, err := lua.Join(t.Context(), b.rdb, lua.JoinParams{Keys: fairKeys, Waiter: waiter("a:1"), VoidAfter: end})
			return r.Status, err
		},
		"permits": func(end lua.Time) (lua.Status, error) {
			r, err := lua.AcquirePermits(t.Context(), b.rdb, lua.AcquirePermitsParams{
				Keys: semaphoreKeys, Waiter: permitWaiter("a:1", permitCall{}), VoidAfter: end, Limit: 8,
			})
			return r.Status, err
		},
		"resize": func(end lua.Time) (lua.Status, error) {
			r, err := lua.Resize(t.Context(), b.rdb, lua.ResizeParams{Keys: semaphoreKeys, Limit: 8, Declared: 8, VoidAfter: end, Stamp: 1})
			return r.Status, err
		},
	} {
		end := lua.Time(now.UnixMicro())
		got, err := call(end)
		require.NoError(t, err)
		require.NotEqual(t, lua.Void, got, name)
		got, err = call(end - 1)
		require.NoError(t, err)
		require.Equal(t, lua.Void, got, name)
	}
}

// The last millisecond of a lease belongs to the permit, and the next one to others.
func TestAPermitLastsToTheMillisecond(t *testing.T) {
	t.Parallel()
	for _, units := range []int{1, 5, 7, 1 << 30, lua.MaxUnits} {
		t.Run(fmt.Sprint(units), func(t *testing.T) {
			b, now := stopped(t)
			c := permitCall{units: units, limit: units}
			look := func() lua.RenewAnswer {
				t.Helper()
				r, err := lua.RenewPermits(t.Context(), b.rdb, 0, []lua.PermitRenewal{
					{Permits: permitNames.Permits, Holders: permitNames.Holders, Acquisition: "a:1", Units: units},
				})
				require.NoError(t, err)
				return r[0]
			}
			takeAndLeave := func(left time.Duration) {
				t.Helper()
				b.mini.SetTime(now)
				require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
				require.Equal(t, lua.Granted, mustTake(t, b, "a:1", c))
				require.Equal(t, 2*hour, inspectPermits(t, b).Held[0].Remaining)
				b.mini.SetTime(now.Add(2*hour - left))
			}

			takeAndLeave(time.Millisecond)
			said := inspectPermits(t, b)
			require.Equal(t, units, said.InUse)
			require.Len(t, said.Held, 1)
			require.Equal(t, time.Millisecond, said.Held[0].Remaining)
			require.Equal(t, lua.RenewHeld, look())
			r, err := take(t.Context(), b.rdb, "b:1", permitCall{units: units, limit: units, try: true})
			require.NoError(t, err)
			require.Equal(t, lua.Busy, r.Status)
			require.Equal(t, lua.QueueState{Position: 1, Limit: units, Remaining: time.Millisecond}, r.QueueState)
			got, err := forcePermits("a:1")(t.Context(), b.rdb)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(units), got)
			takeAndLeave(time.Millisecond)
			got, err = releasePermits("a:1", c)(t.Context(), b.rdb)
			require.NoError(t, err)
			require.Equal(t, "freed", got)

			takeAndLeave(0)
			said = inspectPermits(t, b)
			require.Zero(t, said.InUse)
			require.Empty(t, said.Held)
			require.Equal(t, lua.RenewGone, look())
			got, err = forcePermits("a:1")(t.Context(), b.rdb)
			require.NoError(t, err)
			require.Equal(t, "0", got)
			takeAndLeave(0)
			got, err = releasePermits("a:1", c)(t.Context(), b.rdb)
			require.NoError(t, err)
			require.Equal(t, "gone", got)
			takeAndLeave(0)
			require.Equal(t, lua.Granted, mustTake(t, b, "b:1", c))
			require.Equal(t, units, inspectPermits(t, b).InUse)
			require.Zero(t, b.rdb.ZScore(t.Context(), permitNames.Permits, "a:1#1").Val(), "what is over was dropped")
		})
	}
}

// A waiter asks again when the first of the leases ends, of permits of any units.
func TestAWaiterAsksAgainAtTheFirstEndOfALease(t *testing.T) {
	t.Parallel()
	for _, units := range [][2]int{{1, 4}, {4, 1}, {2, 2}, {1, 1}} {
		b, _ := stopped(t)
		limit := units[0] + units[1]
		for i, lease := range []time.Duration{5 * time.Minute, 3 * time.Minute} {
			c := permitCall{units: units[i], limit: limit, lease: lease}
			require.Equal(t, lua.Granted, mustTake(t, b, fmt.Sprintf("a:%d", i), c))
		}
		r, err := take(t.Context(), b.rdb, "b:1", permitCall{limit: limit, try: true})
		require.NoError(t, err)
		require.Equal(t, lua.QueueState{Position: 1, Limit: limit, Remaining: 3 * time.Minute}, r.QueueState)
		r, err = take(t.Context(), b.rdb, "b:1", permitCall{limit: limit})
		require.NoError(t, err)
		require.Equal(t, lua.QueueState{Position: 1, Length: 1, Limit: limit, Remaining: 3 * time.Minute}, r.QueueState)
	}
}

// An operator who looks at a semaphore that is not there gets no false limit.
func TestASemaphoreThatIsNotThereHasNoLimits(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		said := inspectPermits(t, b)
		require.Equal(t, lua.InspectPermitsReply{Now: said.Now}, said)
		got, err := resize(9, 1)(t.Context(), b.rdb)
		require.NoError(t, err)
		require.Equal(t, "0", got)
		said = inspectPermits(t, b)
		require.Equal(t, lua.InspectPermitsReply{Now: said.Now, Limit: 9, Declared: 8}, said)

		// Where only one of the limits is there, the other is 0.
		prepare(t, b.rdb, "ZREM "+permitNames.Permits+" declared")
		for limit := range 2 {
			r, err := take(t.Context(), b.rdb, "a:1", permitCall{limit: limit + 1})
			require.NoError(t, err)
			require.Equal(t, lua.JoinReply{Status: lua.LimitDiffers, QueueState: lua.QueueState{Limit: 9}, Now: r.Now}, r)
		}
	})
}

// Without descriptions, the entries that are shown tell the units.
func TestEntriesThatAreShownHaveTheUnits(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		require.Equal(t, lua.Granted, mustTake(t, b, "a:1", permitCall{units: 7}))
		require.NoError(t, b.rdb.Del(t.Context(), permitNames.Holders).Err())
		for show, units := range map[int]int{1: 1, 2: 3, 3: 7, 9: 7} {
			r, err := lua.InspectPermits(t.Context(), b.rdb, semaphoreKeys, show)
			require.NoError(t, err)
			require.Len(t, r.Held, 1)
			require.Equal(t, units, r.Held[0].Units, "of %d entries", show)
		}
	})
}

// Beats of several semaphores name the limit of each, for one whose limit was lost.
func TestAHeartbeatBringsTheLimitOfItsSemaphoreBack(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx, now := t.Context(), serverTime(t, b.rdb)
		var batch []lua.PermitHeartbeat
		for i := range 3 {
			name := fmt.Sprintf("{x}%d", i)
			keys := lua.SemaphoreKeys{Permits: name + "p", Holders: name + "h", Queue: name + "q", Alive: name + "a"}
			batch = append(batch, lua.PermitHeartbeat{Keys: keys, Waiter: permitWaiter("b:1", permitCall{}), Limit: 3 + i})
			member := "b:1 1 3600000 7200000"
			require.NoError(t, b.rdb.Do(ctx, "ZADD", keys.Queue, 5, member).Err())
			require.NoError(t, b.rdb.Do(ctx, "ZADD", keys.Alive, now.Add(hour).UnixMilli(), member).Err())
		}
		answers, err := lua.PermitHeartbeats(ctx, b.rdb, 0, "c", true, batch)
		require.NoError(t, err)
		for i, beat := range batch {
			require.Equal(t, lua.Granted, answers[i].Status)
			r, err := lua.InspectPermits(ctx, b.rdb, beat.Keys, 1)
			require.NoError(t, err)
			require.Equal(t, beat.Limit, r.Limit)
			require.Equal(t, beat.Limit, r.Declared)
		}
	})
}
