package lua_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lua"
)

type permitCall struct {
	units, limit int
	lease, keep  time.Duration
	about        string
	try          bool
}

func permitWaiter(who string, c permitCall) lua.Waiter {
	return lua.Waiter{Acquisition: who, Units: max(c.units, 1), Heartbeat: hour, Lease: cmp.Or(c.lease, 2*hour), Description: c.about}
}

func take(ctx context.Context, rdb lua.Redis, who string, c permitCall) (lua.JoinReply, error) {
	if c.limit == 0 {
		c.limit = 8
	}
	return lua.AcquirePermits(ctx, rdb, lua.AcquirePermitsParams{
		Keys: semaphoreKeys, Waiter: permitWaiter(who, c), Try: c.try, VoidAfter: never,
		Limit: c.limit, Retention: c.keep, ClientChannels: key.ClientPrefix,
	})
}

func mustTake(t *testing.T, b *backend, who string, c permitCall) lua.Status {
	t.Helper()
	r, err := take(t.Context(), b.rdb, who, c)
	require.NoError(t, err)
	return r.Status
}

func giveBack(t *testing.T, b *backend, who string) lua.ReleasePermitsReply {
	t.Helper()
	units := 1
	if said, err := lua.InspectPermits(t.Context(), b.rdb, semaphoreKeys, 1000); err == nil { // else a key is of another type
		for _, h := range said.Held {
			if h.Acquisition == who {
				units = h.Units
			}
		}
	}
	r, err := lua.ReleasePermits(t.Context(), b.rdb, lua.ReleasePermitsParams{
		Keys: semaphoreKeys, Waiter: permitWaiter(who, permitCall{units: units}), ClientChannels: key.ClientPrefix,
	})
	require.NoError(t, err)
	return r
}

func inspectPermits(t *testing.T, b *backend) lua.InspectPermitsReply {
	t.Helper()
	r, err := lua.InspectPermits(t.Context(), b.rdb, semaphoreKeys, 1000)
	require.NoError(t, err)
	return r
}

// Any number of units is a few entries: taken, counted, extended, and given back
// together.
func TestPermitsOfAnyNumberOfUnits(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		for _, limit := range []int{1, 2, 7, 8, 1000, 10_000, 1 << 30, lua.MaxUnits} {
			require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
			for _, units := range []int{limit, limit/2 + 1} {
				require.Equal(t, lua.Granted, mustTake(t, b, "a:1", permitCall{units: units, limit: limit, about: "me"}))
				rest := limit - units
				if rest > 0 {
					require.Equal(t, lua.Granted, mustTake(t, b, "a:2", permitCall{units: rest, limit: limit, try: true}))
				}
				require.Equal(t, lua.Busy, mustTake(t, b, "a:3", permitCall{limit: limit, try: true}))
				said := inspectPermits(t, b)
				require.Equal(t, limit, said.InUse)
				require.Equal(t, limit, said.Limit)
				i := slices.IndexFunc(said.Held, func(h lua.HeldPermit) bool { return h.Acquisition == "a:1" })
				require.Equal(t, units, said.Held[i].Units)
				require.Equal(t, "me", said.Held[i].Description)
				require.WithinDuration(t, time.UnixMicro(int64(said.Now)), time.UnixMicro(int64(said.Held[i].Since)), time.Minute)
				size, err := b.rdb.ZCard(t.Context(), permitNames.Permits).Result()
				require.NoError(t, err)
				require.LessOrEqual(t, size, int64(2+2*31))
				giveBack(t, b, "a:2")
				require.Equal(t, units, inspectPermits(t, b).InUse)
				require.Equal(t, lua.Freed, giveBack(t, b, "a:1").Status)
				require.Zero(t, inspectPermits(t, b).InUse)
			}
		}
	})
}

// The limit, the permits and their descriptions are kept for the time that was
// asked for and up to an hour more, from the last use on; the limit stays when nobody has a permit.
func TestTheKeysOfASemaphoreEndTogether(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ttl := func(k string) string {
			d, err := b.rdb.PTTL(t.Context(), k).Result()
			require.NoError(t, err)
			return hours(d)
		}
		mustTake(t, b, "a:1", permitCall{keep: 5 * hour})
		require.Equal(t, "6h 6h", ttl(permitNames.Permits)+" "+ttl(permitNames.Holders))
		mustTake(t, b, "a:2", permitCall{keep: 3 * hour})
		require.Equal(t, "6h 6h", ttl(permitNames.Permits)+" "+ttl(permitNames.Holders), "never shortened")
		_, err := lua.RenewPermits(t.Context(), b.rdb, 9*hour, []lua.PermitRenewal{{Permits: permitNames.Permits, Holders: permitNames.Holders, Acquisition: "a:1", Units: 1, Lease: hour}})
		require.NoError(t, err)
		require.Equal(t, "10h 10h", ttl(permitNames.Permits)+" "+ttl(permitNames.Holders))
		giveBack(t, b, "a:1")
		giveBack(t, b, "a:2")
		require.Equal(t, "10h", ttl(permitNames.Permits))
		keys, err := b.rdb.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		require.Equal(t, []string{permitNames.Permits}, keys)
		mustTake(t, b, "a:3", permitCall{keep: 0})
		require.Equal(t, "without end without end", ttl(permitNames.Permits)+" "+ttl(permitNames.Holders))
		mustTake(t, b, "a:4", permitCall{keep: hour})
		require.Equal(t, "without end without end", ttl(permitNames.Permits)+" "+ttl(permitNames.Holders), "for ever stays")
	})
}

// Whoever writes, for whatever retention: the key never ends before an entry in it.
func TestTheKeyOfPermitsOutlivesEveryEntry(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		const brief = time.Second
		outlives := func(d time.Duration) {
			t.Helper()
			for _, k := range []string{permitNames.Permits, permitNames.Holders} {
				require.Equal(t, hours(d), hours(b.rdb.PTTL(t.Context(), k).Val()))
			}
		}
		mustTake(t, b, "a:1", permitCall{units: 8, keep: brief, lease: hour / 4})
		outlives(hour / 2) // twice an end in less than an hour, and an hour more for others
		waits := permitCall{units: 8, keep: brief, lease: 5 * hour}
		require.Equal(t, lua.Queued, mustTake(t, b, "b:1", waits))
		r, err := lua.ReleasePermits(t.Context(), b.rdb, lua.ReleasePermitsParams{
			Keys: semaphoreKeys, Waiter: permitWaiter("a:1", permitCall{units: 8, lease: hour / 4}), Retention: brief, ClientChannels: key.ClientPrefix,
		})
		require.NoError(t, err)
		require.Equal(t, lua.Freed, r.Status)
		outlives(2 * hour) // of the heartbeat
		beat := lua.PermitHeartbeat{Keys: semaphoreKeys, Waiter: permitWaiter("b:1", waits), Limit: 8}
		answers, err := lua.PermitHeartbeats(t.Context(), b.rdb, brief, key.ClientPrefix, true, []lua.PermitHeartbeat{beat})
		require.NoError(t, err)
		require.Equal(t, lua.Granted, answers[0].Status)
		outlives(6 * hour)
		_, err = lua.RenewPermits(t.Context(), b.rdb, brief, []lua.PermitRenewal{
			{Permits: permitNames.Permits, Holders: permitNames.Holders, Acquisition: "b:1", Units: 8, Lease: 9 * hour},
		})
		require.NoError(t, err)
		outlives(10 * hour)
		resize := lua.ResizeParams{Keys: semaphoreKeys, Limit: 9, Declared: 8, VoidAfter: never, Stamp: 1, Retention: 12 * hour, ClientChannels: "c"}
		_, err = lua.Resize(t.Context(), b.rdb, resize)
		require.NoError(t, err)
		outlives(13 * hour)
		require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
		mustTake(t, b, "a:1", permitCall{keep: brief, lease: hour / 4})
		outlives(hour / 2)
		mustTake(t, b, "a:2", permitCall{keep: brief, lease: 5 * hour})
		outlives(6 * hour)
		mustTake(t, b, "a:3", permitCall{keep: 7 * hour, lease: hour})
		outlives(8 * hour)
	})
}

// A clock that was set back makes a lease last longer; each command that has a lease
// to give sets it to that.
func TestALeaseThatTheClockStretchedIsMended(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		w := permitCall{lease: 2 * hour}
		left := func() string { return hours(inspectPermits(t, b).Held[0].Remaining) }
		mustTake(t, b, "a:1", w)
		for name, mend := range map[string]func() error{
			"renew": func() error {
				_, err := lua.RenewPermits(t.Context(), b.rdb, 0, []lua.PermitRenewal{
					{Permits: permitNames.Permits, Holders: permitNames.Holders, Acquisition: "a:1", Units: 1, Lease: 2 * hour},
				})
				return err
			},
			"beat": func() error {
				_, err := lua.PermitHeartbeats(t.Context(), b.rdb, 0, "c", true, []lua.PermitHeartbeat{{Keys: semaphoreKeys, Waiter: permitWaiter("a:1", w), Limit: 8}})
				return err
			},
			"acquire": func() error { _, err := take(t.Context(), b.rdb, "a:1", w); return err },
		} {
			stretched := redis.Z{Score: float64(serverTime(t, b.rdb).Add(9 * hour).UnixMilli()), Member: "a:1#1"}
			require.NoError(t, b.rdb.ZAddXX(t.Context(), permitNames.Permits, stretched).Err())
			require.Equal(t, "9h", left())
			require.NoError(t, mend())
			require.Equal(t, "2h", left(), name)
		}
	})
}

// A grant to a waiter lasts a lease, where that is shorter than what is left of the
// heartbeat.
func TestAGrantOfPermitsLastsALeaseAtMost(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		mustTake(t, b, "a:1", permitCall{units: 8})
		require.Equal(t, lua.Queued, mustTake(t, b, "b:1", permitCall{lease: hour / 4}))
		giveBack(t, b, "a:1")
		require.InDelta(t, (hour / 4).Minutes(), inspectPermits(t, b).Held[0].Remaining.Minutes(), 1)
	})
}

// Ten thousand permits of which eight thousand are over: every command works, and
// drops only a part of them.
func TestVeryManyPermitsThatAreOver(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx := t.Context()
		all, over := 10_000, 8_000
		if b.mini != nil {
			all, over = 2_500, 2_000 // it sorts a set for each look at it
		}
		now := serverTime(t, b.rdb).UnixMilli()
		entries := []redis.Z{{Score: float64(all), Member: "limit"}, {Score: float64(all), Member: "declared"}}
		for i := range all {
			end := now + hour.Milliseconds()
			if i < over {
				end = now - 1
			}
			entries = append(entries, redis.Z{Score: float64(end), Member: fmt.Sprintf("c:%d#1", i)})
		}
		require.NoError(t, b.rdb.ZAdd(ctx, permitNames.Permits, entries...).Err())
		require.Equal(t, all-over, inspectPermits(t, b).InUse)
		require.Equal(t, lua.OverLimit, mustTake(t, b, "a:1", permitCall{units: all + 1, limit: all}))
		require.Equal(t, lua.Granted, mustTake(t, b, "a:1", permitCall{units: over - 1, limit: all}))
		require.Equal(t, lua.Granted, mustTake(t, b, "a:2", permitCall{limit: all}))
		require.Equal(t, lua.Busy, mustTake(t, b, "a:3", permitCall{limit: all, try: true}))
		require.Equal(t, lua.Gone, giveBack(t, b, "c:7").Status, "over, and pruned or not")
		require.Equal(t, lua.Gone, giveBack(t, b, fmt.Sprintf("c:%d", over-1)).Status, "over, not pruned yet")
		require.Equal(t, lua.Freed, giveBack(t, b, fmt.Sprintf("c:%d", over)).Status)
		answers, err := lua.RenewPermits(ctx, b.rdb, 0, []lua.PermitRenewal{
			{Permits: permitNames.Permits, Holders: permitNames.Holders, Acquisition: fmt.Sprintf("c:%d", over-2), Units: 1, Lease: hour},
			{Permits: permitNames.Permits, Holders: permitNames.Holders, Acquisition: fmt.Sprintf("c:%d", all-1), Units: 1, Lease: hour},
		})
		require.NoError(t, err)
		require.Equal(t, []lua.RenewAnswer{lua.RenewGone, lua.RenewDone}, answers)
		require.Equal(t, all-1, inspectPermits(t, b).InUse)
		left, err := b.rdb.ZCard(ctx, permitNames.Permits).Result()
		require.NoError(t, err)
		require.Greater(t, left, int64(all-over+over/4), "not all at once")
		for range over/200 + 1 {
			giveBack(t, b, "x:1")
		}
		held, err := b.rdb.ZCount(ctx, permitNames.Permits, "-inf", "+inf").Result()
		require.NoError(t, err)
		require.Less(t, held, int64(all-over+30))
	})
}

// A hundred permits of 31 entries each are extended with a few writes for each permit.
func TestARenewalWritesOncePerPermit(t *testing.T) {
	ctx, s := t.Context(), redistest.Start(t)
	rdb, far := s.Control(), time.Now().Add(hour).UnixMilli()
	var batch []lua.PermitRenewal
	for i := range 100 {
		id := fmt.Sprintf("a:%d", i)
		var entries []redis.Z
		for level := range 31 {
			entries = append(entries, redis.Z{Score: float64(int64(level)<<42 + far), Member: fmt.Sprintf("%s#%d", id, 1<<level)})
		}
		require.NoError(t, rdb.ZAdd(ctx, permitNames.Permits, entries...).Err())
		batch = append(batch, lua.PermitRenewal{Permits: permitNames.Permits, Holders: permitNames.Holders, Acquisition: id, Units: lua.MaxUnits, Lease: 2 * hour})
	}
	require.NoError(t, rdb.ConfigResetStat(ctx).Err())
	answers, err := lua.RenewPermits(ctx, rdb, hour, batch)
	require.NoError(t, err)
	require.Equal(t, slices.Repeat([]lua.RenewAnswer{lua.RenewDone}, len(batch)), answers)
	said, err := rdb.Info(ctx, "commandstats").Result()
	require.NoError(t, err)
	for _, command := range []string{"pttl", "persist", "pexpire", "zadd"} {
		_, calls, called := strings.Cut(said, "cmdstat_"+command+":calls=")
		if n := 0; called {
			_, err := fmt.Sscan(calls[:strings.Index(calls, ",")], &n)
			require.NoError(t, err)
			require.LessOrEqual(t, n, 2*len(batch), command)
		}
	}
	reached, err := rdb.ZCount(ctx, permitNames.Permits, fmt.Sprint(far+hour.Milliseconds()/2), "("+fmt.Sprint(1<<42)).Result()
	require.NoError(t, err)
	require.EqualValues(t, len(batch), reached)
}

// One that gives much back serves as many as fit, in order, and each client hears
// of its own; more than one call serves are left to the next.
func TestWhatIsFreeGoesToAsManyAsFit(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.Equal(t, lua.Granted, mustTake(t, b, "a:1", permitCall{units: 8}))
		for i, units := range []int{2, 3, 5, 1} {
			require.Equal(t, lua.Queued, mustTake(t, b, fmt.Sprintf("w%d:1", i), permitCall{units: units}))
		}
		require.Equal(t, lua.Busy, mustTake(t, b, "t:1", permitCall{try: true}))
		sub := b.rdb.Subscribe(ctx, key.ClientPrefix+"w0", key.ClientPrefix+"w1", key.ClientPrefix+"w2", key.ClientPrefix+"w3")
		defer sub.Close()
		for range 4 {
			_, err := sub.Receive(ctx)
			require.NoError(t, err)
		}
		require.Equal(t, lua.ReleasePermitsReply{Status: lua.Freed}, giveBack(t, b, "a:1"))
		for _, want := range []string{"w0:1", "w1:1"} {
			m, err := sub.ReceiveMessage(ctx)
			require.NoError(t, err)
			require.Equal(t, want, m.Payload)
		}
		require.Equal(t, lua.Busy, mustTake(t, b, "t:1", permitCall{try: true}), "3 are free, and somebody waits for 5")
		require.Equal(t, 5, inspectPermits(t, b).InUse)
		giveBack(t, b, "w0:1")
		for _, want := range []string{"w2:1"} {
			m, err := sub.ReceiveMessage(ctx)
			require.NoError(t, err)
			require.Equal(t, want, m.Payload)
		}
		giveBack(t, b, "w2:1")
		m, err := sub.ReceiveMessage(ctx)
		require.NoError(t, err)
		require.Equal(t, "w3:1", m.Payload)
	})
}

func TestVeryManyWaitersAreServedInPieces(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx := t.Context()
		const most = 125
		require.Equal(t, lua.Granted, mustTake(t, b, "a:1", permitCall{units: 1000, limit: 1000}))
		for i := range most {
			require.Equal(t, lua.Queued, mustTake(t, b, fmt.Sprintf("b:%d", i), permitCall{limit: 1000}))
		}
		require.Equal(t, lua.ReleasePermitsReply{Status: lua.Freed, More: true}, giveBack(t, b, "a:1"))
		require.Equal(t, 50, inspectPermits(t, b).InUse)
		require.Equal(t, lua.ReleasePermitsReply{Status: lua.Gone, More: true}, giveBack(t, b, "a:1"))
		require.Equal(t, lua.ReleasePermitsReply{Status: lua.Gone}, giveBack(t, b, "a:1"))
		require.Equal(t, most, inspectPermits(t, b).InUse)
		r, err := lua.Resize(ctx, b.rdb, lua.ResizeParams{Keys: semaphoreKeys, Limit: 5, Declared: 1000, VoidAfter: never, Stamp: 1, ClientChannels: key.ClientPrefix})
		require.NoError(t, err)
		require.Equal(t, 1000, r.Before)
		require.False(t, r.More)
		require.Equal(t, most, inspectPermits(t, b).InUse, "nothing is taken away")
		require.Equal(t, lua.Busy, mustTake(t, b, "c:1", permitCall{limit: 1000, try: true}))
	})
}

// Permits that were deleted, or evicted, leave no description behind for people to
// take for a holder.
func TestDescriptionsGoWithTheirPermits(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx := t.Context()
		_, err := take(ctx, b.rdb, "a:1", permitCall{})
		require.NoError(t, err)
		require.NoError(t, b.rdb.Del(ctx, permitNames.Permits).Err())
		_, err = take(ctx, b.rdb, "b:1", permitCall{})
		require.NoError(t, err)
		require.Equal(t, []string{"b:1"}, b.rdb.HKeys(ctx, permitNames.Holders).Val())
	})
}

// A release drops permits that are over, and their descriptions, also where nobody waits.
func TestAReleaseDropsPermitsThatAreOver(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		for _, units := range []int{1, 2} {
			require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
			mustTake(t, b, "a:1", permitCall{units: units})
			mustTake(t, b, "b:1", permitCall{})
			end := serverTime(t, b.rdb).UnixMilli() - 1 + int64(units-1)<<42
			member := fmt.Sprintf("a:1#%d", units)
			require.NoError(t, b.rdb.ZAddXX(t.Context(), permitNames.Permits, redis.Z{Score: float64(end), Member: member}).Err())
			require.Equal(t, lua.Freed, giveBack(t, b, "b:1").Status)
			require.Equal(t, []string{"declared", "limit"}, b.rdb.ZRange(t.Context(), permitNames.Permits, 0, -1).Val())
			require.Zero(t, b.rdb.Exists(t.Context(), permitNames.Holders).Val())
		}
	})
}

// Members that no script wrote neither count as permits nor hide those that do.
func TestForeignMembersOfThePermitsCountForNothing(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		for _, score := range []float64{-5, 5, 1 << 30} {
			for _, foreign := range []int{1, 6} {
				require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
				require.Equal(t, lua.Granted, mustTake(t, b, "a:1", permitCall{units: 7}))
				for i := range foreign {
					member := redis.Z{Score: score, Member: fmt.Sprintf("foreign %d", i)}
					require.NoError(t, b.rdb.ZAdd(t.Context(), permitNames.Permits, member).Err())
				}
				require.Equal(t, lua.Busy, mustTake(t, b, "b:1", permitCall{units: 2, try: true}))
				require.Equal(t, lua.Granted, mustTake(t, b, "b:1", permitCall{}))
				require.Equal(t, lua.Busy, mustTake(t, b, "c:1", permitCall{try: true}))
				require.Equal(t, lua.Freed, giveBack(t, b, "a:1").Status)
				require.Equal(t, 1, inspectPermits(t, b).InUse)
				require.Equal(t, lua.Freed, giveBack(t, b, "b:1").Status)
				require.Equal(t, lua.Granted, mustTake(t, b, "c:1", permitCall{units: 8}))
			}
		}
	})
}

// A key of another type is a refusal with nothing changed, and a permit that stood
// there is gone. The description is for people: what stands in its place does not
// matter.
func TestSemaphoreKeysOfOtherTypes(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx := t.Context()
		refused := func(err error) {
			t.Helper()
			fault, code := lua.Classify(err)
			require.Equal(t, lua.Refused, fault)
			require.Equal(t, "WRONGTYPE", code)
		}
		for _, k := range []string{permitNames.Permits, permitNames.Queue, permitNames.Alive, permitNames.Holders} {
			require.NoError(t, b.rdb.FlushAll(ctx).Err())
			require.NoError(t, b.rdb.Set(ctx, k, "x", 0).Err())
			_, err := take(ctx, b.rdb, "a:1", permitCall{})
			beat := lua.PermitHeartbeat{Keys: semaphoreKeys, Waiter: permitWaiter("b:1", permitCall{}), Limit: 8}
			_, beatErr := lua.PermitHeartbeats(ctx, b.rdb, 0, "c", true, []lua.PermitHeartbeat{beat})
			beats, err2 := lua.PermitHeartbeats(ctx, b.rdb, 0, "c", true, []lua.PermitHeartbeat{beat, beat})
			require.NoError(t, err2)
			_, inspectErr := lua.InspectPermits(ctx, b.rdb, semaphoreKeys, 10)
			switch k {
			case permitNames.Holders:
				require.NoError(t, err)
				require.NoError(t, beatErr)
				require.NoError(t, inspectErr)
				require.Equal(t, lua.Freed, giveBack(t, b, "a:1").Status)
				continue
			case permitNames.Permits:
				_, err := lua.Resize(ctx, b.rdb, lua.ResizeParams{Keys: semaphoreKeys, Limit: 5, Declared: 8, VoidAfter: never, Stamp: 1})
				refused(err)
				_, _, err = lua.ForceReleasePermits(ctx, b.rdb, semaphoreKeys, "a:1", 0, "c")
				refused(err)
				answers, err := lua.RenewPermits(ctx, b.rdb, 0, []lua.PermitRenewal{{Permits: k, Holders: permitNames.Holders, Acquisition: "a:1", Units: 1, Lease: hour}})
				require.NoError(t, err)
				require.Equal(t, []lua.RenewAnswer{lua.RenewGone}, answers)
			}
			refused(err)
			refused(inspectErr)
			refused(beatErr)
			require.Equal(t, lua.Denied, beats[1].Status, "of several, none is answered why")
			require.Equal(t, lua.Gone, giveBack(t, b, "a:1").Status)
			keys, err := b.rdb.Keys(ctx, "*").Result()
			require.NoError(t, err)
			require.Equal(t, []string{k}, keys)
		}
		// A queue of another type does not keep what is held from being given back.
		require.NoError(t, b.rdb.FlushAll(ctx).Err())
		mustTake(t, b, "a:1", permitCall{})
		require.NoError(t, b.rdb.Set(ctx, permitNames.Queue, "x", 0).Err())
		require.Equal(t, lua.Freed, giveBack(t, b, "a:1").Status)
	})
}

func TestAWaiterForPermitsThatWasRemovedIsNotified(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		mustTake(t, b, "a:1", permitCall{units: 8})
		mustTake(t, b, "b:1", permitCall{about: "me"})
		w := permitWaiter("b:1", permitCall{about: "me"})
		did, err := lua.Remove(t.Context(), b.rdb, permitNames.Queue, permitNames.Alive, w, key.ClientPrefix)
		require.NoError(t, err)
		require.True(t, did)
		r, err := lua.PermitHeartbeats(t.Context(), b.rdb, 0, "c", true, []lua.PermitHeartbeat{{Keys: semaphoreKeys, Waiter: w, Limit: 8}})
		require.NoError(t, err)
		require.Equal(t, lua.Removed, r[0].Status)
	})
}

func TestDescriptionsOfPermitsAreOnlyData(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		for _, about := range []string{"", "1 2 3", "limit", "a#1", "a\x00\r\n🔒", "%s %d .*", "'\"; return 1 --"} {
			require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
			mustTake(t, b, "a:1", permitCall{units: 8, about: about})
			mustTake(t, b, "b:1", permitCall{units: 3, about: about})
			require.Equal(t, strings.TrimRight(about, " "), inspectPermits(t, b).Held[0].Description)
			giveBack(t, b, "a:1")
			held := inspectPermits(t, b).Held
			require.Len(t, held, 1)
			require.Equal(t, "b:1", held[0].Acquisition)
			require.Equal(t, about, held[0].Description)
		}
	})
}

func TestWithoutMemoryNoPermitIsGrantedAndAllAreReleased(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := &backend{rdb: dial(t, s.addr, 3, nil), addr: s.addr}
	ctx := t.Context()
	full := func(bytes int) { require.NoError(t, b.rdb.ConfigSet(ctx, "maxmemory", fmt.Sprint(bytes)).Err()) }
	refused := func(err error) {
		t.Helper()
		fault, code := lua.Classify(err)
		require.Equal(t, lua.Refused, fault)
		require.Equal(t, "OOM", code)
	}
	full(1)
	_, err := take(ctx, b.rdb, "a:1", permitCall{})
	refused(err)
	full(0)
	mustTake(t, b, "a:1", permitCall{units: 5})
	mustTake(t, b, "a:2", permitCall{units: 3})
	mustTake(t, b, "b:1", permitCall{units: 3})
	// Some time has passed since it queued: its first write is the one that Redis accepts.
	require.NoError(t, b.rdb.PExpire(ctx, permitNames.Queue, hour).Err())
	full(1)
	answers, err := lua.RenewPermits(ctx, b.rdb, 0, []lua.PermitRenewal{{Permits: permitNames.Permits, Holders: permitNames.Holders, Acquisition: "a:1", Units: 5, Lease: 9 * hour}})
	require.NoError(t, err)
	require.Equal(t, []lua.RenewAnswer{lua.RenewDone}, answers)
	beats, err := lua.PermitHeartbeats(ctx, b.rdb, 0, "c", true, []lua.PermitHeartbeat{{Keys: semaphoreKeys, Waiter: permitWaiter("b:1", permitCall{units: 3}), Limit: 8}})
	require.NoError(t, err)
	require.Equal(t, lua.Queued, beats[0].Status)
	require.Equal(t, lua.Freed, giveBack(t, b, "a:2").Status, "and the next is served")
	require.Equal(t, 8, inspectPermits(t, b).InUse)
	units, _, err := lua.ForceReleasePermits(ctx, b.rdb, semaphoreKeys, "a:1", 0, "c")
	require.NoError(t, err)
	require.Equal(t, 5, units)
	_, err = take(ctx, b.rdb, "d:1", permitCall{})
	refused(err)
	require.Equal(t, 3, inspectPermits(t, b).InUse)
}

// An operator ends an id that has no units any more, and waits, while units are free. It gets them
// in the same call, with its description.
func TestAWaiterThatIsEndedKeepsWhatItGets(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		mustTake(t, b, "a:1", permitCall{units: 8})
		require.Equal(t, lua.Queued, mustTake(t, b, "b:1", permitCall{about: "me"}))
		require.NoError(t, b.rdb.ZRem(t.Context(), permitNames.Permits, "a:1#8").Err())
		units, _, err := lua.ForceReleasePermits(t.Context(), b.rdb, semaphoreKeys, "b:1", 0, "c")
		require.NoError(t, err)
		require.Zero(t, units)
		held := inspectPermits(t, b).Held
		require.Len(t, held, 1)
		require.Equal(t, "b:1 me", held[0].Acquisition+" "+held[0].Description)
	})
}

// Without memory a request changes nothing of a semaphore, whoever waits, and whether or not its
// limit is known.
func TestWithoutMemoryARequestChangesNothingOfASemaphore(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	rdb := dial(t, s.addr, 3, nil)
	for name, c := range map[string]struct {
		waits, lost bool
		call        permitCall
	}{
		"full, nobody waits":                 {},
		"full, somebody waits":               {waits: true},
		"the limit was lost, somebody waits": {waits: true, lost: true, call: permitCall{try: true}},
		"likewise, for a place":              {waits: true, lost: true},
		"the limit was lost, nobody waits":   {lost: true},
	} {
		prepare(t, rdb, "CONFIG SET maxmemory 0", "FLUSHALL")
		_, err := take(t.Context(), rdb, "a:1", permitCall{units: 8})
		require.NoError(t, err)
		if c.waits {
			_, err = take(t.Context(), rdb, "b:1", permitCall{})
			require.NoError(t, err)
		}
		if c.lost {
			prepare(t, rdb, "DEL "+permitNames.Permits)
		}
		stored := content(t, rdb)
		prepare(t, rdb, "CONFIG SET maxmemory 1")
		_, err = take(t.Context(), rdb, "d:1", c.call)
		fault, code := lua.Classify(err)
		require.Equal(t, "OOM", code, "%s: %v", name, err)
		require.Equal(t, lua.Refused, fault)
		require.Equal(t, stored, content(t, rdb), name)
	}
}

// Very many dead waiters stand before the living, and the first of them would not fit: whoever
// asks the answer is to ask again at once, and not at the end of somebody's lease.
func TestAWaiterBehindVeryManyExpiredAsksAgainAtOnce(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx, now := t.Context(), float64(serverTime(t, b.rdb).UnixMilli())
		waits := permitCall{units: 2}
		for name, call := range map[string]func() lua.QueueState{
			"acquire": func() lua.QueueState {
				r, err := take(ctx, b.rdb, "b:1", waits)
				require.NoError(t, err)
				return r.QueueState
			},
			"try": func() lua.QueueState {
				r, err := take(ctx, b.rdb, "t:1", permitCall{units: 2, try: true})
				require.NoError(t, err)
				return r.QueueState
			},
			"beat": func() lua.QueueState {
				r, err := lua.PermitHeartbeats(ctx, b.rdb, 0, "c", true, []lua.PermitHeartbeat{{Keys: semaphoreKeys, Waiter: permitWaiter("b:1", waits), Limit: 8}})
				require.NoError(t, err)
				return r[0].QueueState
			},
		} {
			require.NoError(t, b.rdb.FlushAll(ctx).Err())
			require.Equal(t, lua.Granted, mustTake(t, b, "a:1", permitCall{units: 7}))
			require.Equal(t, lua.Queued, mustTake(t, b, "b:1", waits))
			dead := make([]redis.Z, 1100)
			for i := range dead {
				dead[i] = redis.Z{Score: float64(i + 1), Member: fmt.Sprintf("d:%d 2 3600000 3600000", i)}
			}
			require.NoError(t, b.rdb.ZAdd(ctx, permitNames.Queue, dead...).Err())
			require.NoError(t, b.rdb.ZAdd(ctx, permitNames.Alive, append(dead, redis.Z{Score: now - 1, Member: "grace"})...).Err())
			for range 2 {
				require.Zero(t, call().Remaining, name)
			}
			require.Positive(t, call().Remaining, name)
		}
	})
}

// A beat drops what is over, as every command does.
func TestAHeartbeatDropsExpiredPermits(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		mustTake(t, b, "a:1", permitCall{units: 8})
		mustTake(t, b, "b:1", permitCall{units: 8})
		over := redis.Z{Score: float64(serverTime(t, b.rdb).UnixMilli() - 1), Member: "c:1#1"}
		require.NoError(t, b.rdb.ZAdd(t.Context(), permitNames.Permits, over).Err())
		beat := lua.PermitHeartbeat{Keys: semaphoreKeys, Waiter: permitWaiter("b:1", permitCall{units: 8}), Limit: 8}
		_, err := lua.PermitHeartbeats(t.Context(), b.rdb, 0, "c", true, []lua.PermitHeartbeat{beat})
		require.NoError(t, err)
		require.Equal(t, []string{"declared", "limit", "a:1#8"}, b.rdb.ZRange(t.Context(), permitNames.Permits, 0, -1).Val())
	})
}

// Whoever waits behind others that are served asks again when the first lease of those ends.
func TestAWaiterAsksAgainWhenALeaseGivenBeforeItEnds(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		last := permitWaiter("c:1", permitCall{units: 8})
		for name, call := range map[string]func() lua.QueueState{
			"acquire": func() lua.QueueState {
				r, err := take(t.Context(), b.rdb, "c:1", permitCall{units: 8})
				require.NoError(t, err)
				return r.QueueState
			},
			"beat": func() lua.QueueState {
				r, err := lua.PermitHeartbeats(t.Context(), b.rdb, 0, "c", true, []lua.PermitHeartbeat{{Keys: semaphoreKeys, Waiter: last, Limit: 8}})
				require.NoError(t, err)
				return r[0].QueueState
			},
		} {
			require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
			mustTake(t, b, "a:1", permitCall{units: 8, lease: 3 * hour})
			mustTake(t, b, "b:1", permitCall{lease: hour / 4})
			mustTake(t, b, "c:1", permitCall{units: 8})
			require.NoError(t, b.rdb.ZRem(t.Context(), permitNames.Permits, "a:1#8").Err())
			p := call()
			require.Equal(t, 1, p.Position, name)
			require.Equal(t, 7, p.Free, name)
			require.InDelta(t, (hour / 4).Minutes(), p.Remaining.Minutes(), 1, name)
		}
	})
}

// A beat of one without a heartbeat to speak of finds that it is not in the queue any more.
func TestAHeartbeatWithoutATimeoutHasNoPlace(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		mustTake(t, b, "a:1", permitCall{units: 8})
		mustTake(t, b, "b:1", permitCall{})
		w := permitWaiter("c:1", permitCall{})
		w.Heartbeat = 0
		member := "c:1 1 0 7200000"
		soon := float64(serverTime(t, b.rdb).Add(hour).UnixMilli())
		require.NoError(t, b.rdb.ZAdd(t.Context(), permitNames.Queue, redis.Z{Score: 7, Member: member}).Err())
		require.NoError(t, b.rdb.ZAdd(t.Context(), permitNames.Alive, redis.Z{Score: soon, Member: member}).Err())
		r, err := lua.PermitHeartbeats(t.Context(), b.rdb, 0, "c", true, []lua.PermitHeartbeat{{Keys: semaphoreKeys, Waiter: w, Limit: 8}})
		require.NoError(t, err)
		require.Equal(t, lua.Gone, r[0].Status)
		require.Equal(t, 1, inspectPermits(t, b).Waiting)
	})
}

// Of waiters that beat in one command none is dropped because another's beat came
// first in it; and what is free goes to them in their order.
func TestHeartbeatsOfABatchAreNotedBeforeAnybodyExpires(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		mustTake(t, b, "a:1", permitCall{units: 8})
		batch := make([]lua.PermitHeartbeat, 100)
		late := float64(serverTime(t, b.rdb).UnixMilli() - 1)
		for i := range batch {
			id := fmt.Sprintf("b:%d", i)
			require.Equal(t, lua.Queued, mustTake(t, b, id, permitCall{lease: 5 * hour}))
			batch[i] = lua.PermitHeartbeat{Keys: semaphoreKeys, Waiter: permitWaiter(id, permitCall{lease: 5 * hour}), Limit: 8}
		}
		for i := range batch[1:] { // the first is in time, so that the others get no grace
			member := fmt.Sprintf("b:%d 1 %d %d", i+1, hour.Milliseconds(), 5*hour.Milliseconds())
			require.NoError(t, b.rdb.ZAddXX(t.Context(), permitNames.Alive, redis.Z{Score: late, Member: member}).Err())
		}
		answers, err := lua.PermitHeartbeats(t.Context(), b.rdb, 0, "c", true, batch)
		require.NoError(t, err)
		for i, a := range answers {
			require.Equal(t, lua.HeartbeatReply{Status: lua.Queued, QueueState: lua.QueueState{Position: i + 1, Length: 100, Limit: 8, Remaining: a.QueueState.Remaining}}, a)
		}
		require.NoError(t, b.rdb.ZRem(t.Context(), permitNames.Permits, "a:1#8").Err())
		for _, take := range []bool{false, false, true} {
			answers, err = lua.PermitHeartbeats(t.Context(), b.rdb, 0, "c", take, batch)
			require.NoError(t, err)
			for i, a := range answers {
				if i < 8 {
					require.Equal(t, lua.Granted, a.Status, "%d", i)
				} else {
					require.Equal(t, i-7, a.QueueState.Position)
				}
			}
			left := map[bool]string{false: "1h", true: "5h"}[take] // a heartbeat, or the whole lease
			for _, h := range inspectPermits(t, b).Held {
				require.Equal(t, left, hours(h.Remaining), "take: %t", take)
			}
		}
	})
}

func keepPermit(who string, number int, c permitCall) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		r, err := lua.KeepPermit(ctx, rdb, lua.KeepPermitParams{
			Keys: semaphoreKeys, Acquisition: who, Units: max(1, c.units), Kept: "kept-x", Number: number,
			For: cmp.Or(c.lease, 3*hour), VoidAfter: never, Retention: c.keep,
		})
		return statusNames[r.Status], err
	}
}

// Redis keeps a permit under an id of its own, so nothing that was sent for the acquisition changes
// it.
func TestKeepPermitEndsOnlyItsOwn(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		held := func() (all []string) {
			for _, h := range inspectPermits(t, b).Held {
				all = append(all, fmt.Sprintf("%s x%d %s %s", h.Acquisition, h.Units, hours(h.Remaining), h.Description))
			}
			slices.Sort(all)
			return all
		}
		keep := func(want, who string, number int, c permitCall) {
			t.Helper()
			got, err := keepPermit(who, number, c)(t.Context(), b.rdb)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		const other = "d:1 x1 1h "
		five := permitCall{units: 5, lease: hour, about: "me", keep: hour}
		keep("gone", "a:1", 1, five)
		require.Empty(t, b.rdb.Keys(t.Context(), "*").Val(), "never created")
		mustTake(t, b, "a:1", five)
		mustTake(t, b, "d:1", permitCall{lease: hour})
		since := inspectPermits(t, b).Held
		keep("gone", "d:2", 1, five)
		keep("gone", "a:1", 1, permitCall{units: 7}) // never more units than it has
		require.Equal(t, []string{"a:1 x5 1h me", other}, held())

		keep("kept", "a:1", 1, permitCall{units: 5})
		require.Equal(t, []string{other, "kept-x:1 x5 3h me"}, held())
		require.ElementsMatch(t, []lua.Time{since[0].Since, since[1].Since}, []lua.Time{inspectPermits(t, b).Held[0].Since, inspectPermits(t, b).Held[1].Since})
		keep("kept", "a:1", 1, permitCall{units: 5, lease: hour}) // a copy
		require.Equal(t, []string{other, "kept-x:1 x5 3h me"}, held())
		keep("kept", "a:1", 3, permitCall{units: 5, lease: 2 * hour}) // a later call
		require.Equal(t, []string{other, "kept-x:3 x5 2h me"}, held())
		keep("gone", "a:1", 1, permitCall{units: 5}) // a copy of an earlier one
		require.Equal(t, []string{other, "kept-x:3 x5 2h me"}, held())

		answers, err := lua.RenewPermits(t.Context(), b.rdb, hour, []lua.PermitRenewal{
			{Permits: permitNames.Permits, Holders: permitNames.Holders, Acquisition: "a:1", Units: 5, Lease: 5 * hour},
		})
		require.NoError(t, err)
		require.Equal(t, []lua.RenewAnswer{lua.RenewGone}, answers)
		require.Equal(t, lua.Gone, giveBack(t, b, "a:1").Status)
		require.Equal(t, []string{other, "kept-x:3 x5 2h me"}, held())
	})
}

func TestKeepPermitMayComeTooLate(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		mustTake(t, b, "a:1", permitCall{lease: hour})
		r, err := lua.KeepPermit(t.Context(), b.rdb, lua.KeepPermitParams{
			Keys: semaphoreKeys, Acquisition: "a:1", Units: 1, Kept: "kept-x", Number: 1, For: 3 * hour, VoidAfter: 1,
		})
		require.NoError(t, err)
		require.Equal(t, lua.Void, r.Status)
		require.Equal(t, "a:1", inspectPermits(t, b).Held[0].Acquisition)
	})
}
