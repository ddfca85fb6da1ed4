package lua_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lua"
)

// userOf returns a client of a new user with these rules.
func (s *server) userOf(t *testing.T, admin *redis.Client, rules ...string) *redis.Client {
	t.Helper()
	name := fmt.Sprintf("u%d", len(admin.Do(t.Context(), "ACL", "LIST").Val().([]any)))
	args := []any{"ACL", "SETUSER", name, "on", ">p", "+@all", "allchannels"}
	for _, r := range rules {
		args = append(args, r)
	}
	require.NoError(t, admin.Do(t.Context(), args...).Err())
	return dial(t, s.addr, 3, func(o *redis.Options) { o.Username, o.Password = name, "p" })
}

func requireDenied(t *testing.T, err error, what ...any) {
	t.Helper()
	fault, code := lua.Classify(err)
	require.Equal(t, "NOPERM", code, append(what, err)...)
	require.Equal(t, lua.Refused, fault)
}

func releasePermits(who string, c permitCall) func(context.Context, lua.Redis) (string, error) {
	return permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
		r, err := lua.ReleasePermits(ctx, rdb, lua.ReleasePermitsParams{Keys: semaphoreKeys, Waiter: permitWaiter(who, c), ClientChannels: "c"})
		return statusNames[r.Status], err
	})
}

func forcePermits(who string) func(context.Context, lua.Redis) (string, error) {
	return permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
		units, _, err := lua.ForceReleasePermits(ctx, rdb, semaphoreKeys, who, 0, "c")
		return units, err
	})
}

func takePermits(who string, c permitCall) func(context.Context, lua.Redis) (string, error) {
	return permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
		r, err := take(ctx, rdb, who, c)
		return statusNames[r.Status], err
	})
}

func beatPermits(who ...string) func(context.Context, lua.Redis) (string, error) {
	return permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
		var batch []lua.PermitHeartbeat
		for _, w := range who {
			batch = append(batch, lua.PermitHeartbeat{Keys: semaphoreKeys, Waiter: permitWaiter(w, permitCall{}), Limit: 8})
		}
		r, err := lua.PermitHeartbeats(ctx, rdb, 0, "c", true, batch)
		var all []string
		for _, a := range r {
			all = append(all, statusNames[a.Status])
		}
		return all, err
	})
}

func resize(limit int, stamp lua.Time) func(context.Context, lua.Redis) (string, error) {
	return resizeWith(lua.ResizeParams{Limit: limit, Stamp: stamp})
}

func resizeFor(keep time.Duration, limit int) func(context.Context, lua.Redis) (string, error) {
	return resizeWith(lua.ResizeParams{Limit: limit, Stamp: 1, Retention: keep})
}

func resizeWith(p lua.ResizeParams) func(context.Context, lua.Redis) (string, error) {
	p.Keys, p.Declared, p.VoidAfter, p.ClientChannels = semaphoreKeys, 8, never, "c"
	return permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
		r, err := lua.Resize(ctx, rdb, p)
		return r.Before, err
	})
}

// A waiter whose units could not be written is out of the queue. It hears that, and not a place.
func TestAWaiterWhosePermitIsRefusedIsNotified(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	admin := dial(t, s.addr, 3, nil)
	rdb := s.userOf(t, admin, "allkeys", "-persist")
	waits := func() {
		t.Helper()
		prepare(t, admin, "FLUSHALL")
		for _, who := range []string{"a:1", "b:1", "c:1"} {
			units := map[string]int{"a:1": 8}[who]
			_, err := take(t.Context(), admin, who, permitCall{units: units})
			require.NoError(t, err)
		}
		prepare(t, admin, "ZREM "+permitNames.Permits+" a:1#8")
	}
	waits()
	_, err := beatPermits("b:1")(t.Context(), rdb)
	requireDenied(t, err)
	waits()
	got, err := beatPermits("b:1", "c:1")(t.Context(), rdb)
	require.NoError(t, err)
	require.Equal(t, "[denied queued]", got)
	waits()
	got, err = takePermits("b:1", permitCall{})(t.Context(), rdb)
	require.Error(t, err, got)
	requireDenied(t, err)
}

// A command of a waiter that meets one that is denied is refused with nothing changed.
func TestWhatIsDeniedToAWaiterChangesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	admin := dial(t, s.addr, 3, nil)
	waiting := with(heldFair, bcQueued)
	untaken := func(ctx context.Context, rdb lua.Redis) (string, error) {
		_, err := lua.Heartbeats(ctx, rdb, 0, "c", false, []lua.Heartbeat{{Keys: fairKeys, Waiter: waiter("a:1")}})
		return "", err
	}
	for _, c := range []struct {
		denied, name string
		call         func(context.Context, lua.Redis) (string, error)
	}{
		{"-pexpire", "beat that finds its grant", beat("a:1")},
		{"-pexpire", "beat in the queue", beat("b:1")},
		{"-pexpire", "join that finds its grant", join("a:1")},
		{"-hdel", "beat that takes nothing", untaken},
		{"-hgetall", "beat", beat("b:1")},
		{"-get", "beat", beat("b:1")},
		{"-zcard", "beat", beat("b:1")},
		{"-hgetall", "join", join("d:1")},
		{"-get", "join", join("d:1")},
		{"-zcard", "join", join("d:1")},
		{"-hexists", "leave", leave("a:1")},
		{"-del -hdel", "leave", leave("a:1")},
		{"-del -hgetall", "leave", leave("a:1")},
		{"-zrem", "leave of a waiter", leave("b:1")},
		{"-hgetall", "forced release", forceFair("")},
		{"-del -hdel", "forced release", forceFair("")},
		{"-zcard", "removal", removeWaiter("b:1")},
		{"-zrem", "removal", removeWaiter("b:1")},
		{"-zcard", "search", find("b:1", "", 1)},
		{"-zcard", "list", queue(0, 10)},
	} {
		prepare(t, admin, "FLUSHALL")
		prepare(t, admin, waiting...)
		_, err := c.call(t.Context(), s.userOf(t, admin, append(strings.Fields(c.denied), "allkeys")...))
		requireDenied(t, err, c.name, c.denied)
		require.Equal(t, stillHeld+bcWait, keyspace(t, admin), "%s %s", c.name, c.denied)
	}
	prepare(t, admin, "FLUSHALL")
	prepare(t, admin, waiting...)
	got, err := beat("a:1", "b:1")(t.Context(), s.userOf(t, admin, "allkeys", "-pexpire"))
	require.NoError(t, err)
	require.Equal(t, "denied; denied", got, "of several, none is answered why")
	answers, err := lua.Renew(t.Context(), s.userOf(t, admin, "allkeys", "-hexists"), []lua.Renewal{{LockKey: names.Lock, Acquisition: "a:1", Lease: hour}})
	require.NoError(t, err)
	require.Equal(t, []lua.RenewAnswer{lua.RenewRefused}, answers)

	// The next could not be granted the lock: nobody is said to have it.
	prepare(t, admin, "FLUSHALL", "SET @F 5000000000000000")
	prepare(t, admin, bcQueued...)
	got, err = join("d:1", tryOnly)(t.Context(), s.userOf(t, admin, "allkeys", "-pexpire"))
	require.Error(t, err, got)
	requireDenied(t, err)
}

func TestWhatIsDeniedToASemaphoreChangesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	admin := dial(t, s.addr, 3, nil)
	renewed := func(ctx context.Context, rdb lua.Redis) (string, error) {
		r, err := lua.RenewPermits(ctx, rdb, 0, []lua.PermitRenewal{
			{Permits: permitNames.Permits, Holders: permitNames.Holders, Acquisition: "a:1", Units: 8, Lease: hour},
		})
		return fmt.Sprint(r), err
	}
	prepareAll := func() (stored []redis.Z) {
		t.Helper()
		prepare(t, admin, "FLUSHALL")
		_, err := take(t.Context(), admin, "a:1", permitCall{units: 8})
		require.NoError(t, err)
		_, err = take(t.Context(), admin, "b:1", permitCall{})
		require.NoError(t, err)
		return content(t, admin)
	}
	for _, c := range []struct {
		denied, name string
		call         func(context.Context, lua.Redis) (string, error)
	}{
		{"-persist", "a copy of an acquire", takePermits("a:1", permitCall{units: 8})},
		{"-zadd", "a place", takePermits("d:1", permitCall{})},
		{"-zcard", "a place", takePermits("d:1", permitCall{})},
		{"-zadd", "beat", beatPermits("b:1")},
		{"-zcard", "beat", beatPermits("b:1")},
		{"-zrem", "release", releasePermits("a:1", permitCall{units: 8})},
		{"-zrem", "release of a waiter", releasePermits("b:1", permitCall{})},
		{"-zrem", "forced release", forcePermits("a:1")},
		{"-zscore", "forced release", forcePermits("a:1")},
		{"-zadd", "resize", resize(9, 1)},
		{"-persist", "resize, for ever", resize(9, 1)},
		{"-zscore", "resize", resize(9, 1)},
	} {
		stored := prepareAll()
		got, err := c.call(t.Context(), s.userOf(t, admin, "allkeys", c.denied))
		require.Error(t, err, "%s %s: %s", c.name, c.denied, got)
		requireDenied(t, err, c.name, c.denied)
		if c.denied != "-persist" {
			require.Equal(t, stored, content(t, admin), "%s %s", c.name, c.denied)
		}
	}
	prepareAll()
	withoutPersist := s.userOf(t, admin, "allkeys", "-persist")
	got, err := renewed(t.Context(), withoutPersist)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint([]lua.RenewAnswer{lua.RenewRefused}), got)
	// Of a permit of its own, the answer says that it was refused.
	w := permitWaiter("a:1", permitCall{units: 8})
	one := lua.PermitHeartbeat{Keys: semaphoreKeys, Waiter: w, Limit: 8}
	_, err = lua.PermitHeartbeats(t.Context(), withoutPersist, 0, "c", true, []lua.PermitHeartbeat{one})
	requireDenied(t, err)
	answers, err := lua.PermitHeartbeats(t.Context(), withoutPersist, 0, "c", true, []lua.PermitHeartbeat{one, one})
	require.NoError(t, err)
	require.Equal(t, []lua.HeartbeatReply{{Status: lua.Denied}, {Status: lua.Denied}}, answers)
}

// content is who is in the permits and in the queue, with the score.
func content(t *testing.T, rdb *redis.Client) (all []redis.Z) {
	t.Helper()
	for _, k := range []string{permitNames.Permits, permitNames.Queue, permitNames.Alive} {
		members, err := rdb.ZRangeWithScores(t.Context(), k, 0, -1).Result()
		require.NoError(t, err)
		all = append(all, members...)
	}
	return all
}
