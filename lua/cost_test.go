package lua_test

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/lua"
)

// priced is a server on which commands are counted. Its calls have the defaults of the library: a
// fence that is kept for an hour.
type priced struct {
	t   *testing.T
	rdb *redis.Client
}

func (p priced) join(who string, try bool) lua.Status {
	r, err := lua.Join(p.t.Context(), p.rdb, lua.JoinParams{
		Keys: fairKeys, Waiter: waiter(who), Try: try, VoidAfter: never, FenceRetention: 8 * hour, ClientChannels: key.ClientPrefix,
	})
	require.NoError(p.t, err)
	return r.Status
}

func (p priced) leave(who string) lua.Status {
	r, err := lua.ReleaseFair(p.t.Context(), p.rdb, lua.ReleaseFairParams{
		Keys: fairKeys, Waiter: waiter(who), Channel: names.Channel, FenceRetention: hour, ClientChannels: key.ClientPrefix,
	})
	require.NoError(p.t, err)
	return r.Status
}

func (p priced) beat(who string, take bool) lua.Status {
	r, err := lua.Heartbeats(p.t.Context(), p.rdb, hour, key.ClientPrefix, take, []lua.Heartbeat{{Keys: fairKeys, Waiter: waiter(who)}})
	require.NoError(p.t, err)
	return r[0].Status
}

func (p priced) acquire(who string, units int, try bool) lua.Status {
	r, err := take(p.t.Context(), p.rdb, who, permitCall{units: units, lease: hour, keep: hour, about: "host-1", try: try})
	require.NoError(p.t, err)
	return r.Status
}

func (p priced) release(who string, units int) lua.Status {
	r, err := lua.ReleasePermits(p.t.Context(), p.rdb, lua.ReleasePermitsParams{
		Keys: semaphoreKeys, Waiter: permitWaiter(who, permitCall{units: units, lease: hour, about: "host-1"}), Retention: hour, ClientChannels: key.ClientPrefix,
	})
	require.NoError(p.t, err)
	return r.Status
}

func (p priced) beatPermits(who string, units int, take bool) lua.Status {
	w := permitWaiter(who, permitCall{units: units, lease: hour, about: "host-1"})
	r, err := lua.PermitHeartbeats(p.t.Context(), p.rdb, hour, key.ClientPrefix, take, []lua.PermitHeartbeat{{Keys: semaphoreKeys, Waiter: w, Limit: 8}})
	require.NoError(p.t, err)
	return r[0].Status
}

// commands is how many commands the server has run since the last CONFIG RESETSTAT, those inside
// scripts included, but for those of the test and of a connection that begins.
func (p priced) commands() (n int) {
	info, err := p.rdb.Info(p.t.Context(), "commandstats").Result()
	require.NoError(p.t, err)
	lines := bufio.NewScanner(strings.NewReader(info))
	for lines.Scan() {
		name, calls, is := strings.Cut(strings.TrimPrefix(lines.Text(), "cmdstat_"), ":calls=")
		command, _, _ := strings.Cut(name, "|")
		switch command {
		case "config", "info", "hello", "client", "ping":
			continue
		}
		if is {
			var count int
			_, err := fmt.Sscan(calls[:strings.Index(calls, ",")], &count)
			require.NoError(p.t, err)
			n += count
		}
	}
	return n
}

// The common cases of the scripts take this many Redis commands, the script itself included. More
// is a loss for every user; less is good, and goes into the table.
func TestTheCommonCasesTakeFewCommands(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		given    func(p priced)
		does     func(p priced) []lua.Status
		want     []lua.Status
		commands int
	}{
		{
			"fair: lock and unlock", func(priced) {},
			func(p priced) []lua.Status { return []lua.Status{p.join("a:1", false), p.leave("a:1")} },
			[]lua.Status{lua.Granted, lua.Freed}, 12,
		},
		{
			"fair: try a lock that is held", func(p priced) { p.join("a:1", false) },
			func(p priced) []lua.Status { return []lua.Status{p.join("b:1", true)} },
			[]lua.Status{lua.Busy}, 6,
		},
		{
			"fair: the first that waits", func(p priced) { p.join("a:1", false) },
			func(p priced) []lua.Status { return []lua.Status{p.join("b:1", false)} },
			[]lua.Status{lua.Queued}, 10,
		},
		{
			"fair: a heartbeat of one waiter", func(p priced) { p.join("a:1", false); p.join("b:1", false) },
			func(p priced) []lua.Status { return []lua.Status{p.beat("b:1", false)} },
			[]lua.Status{lua.Queued}, 15,
		},
		{
			"fair: a heartbeat of one of two waiters", func(p priced) { p.join("a:1", false); p.join("b:1", false); p.join("c:1", false) },
			func(p priced) []lua.Status { return []lua.Status{p.beat("b:1", false)} },
			[]lua.Status{lua.Queued}, 16,
		},
		{
			"fair: unlock and hand over", func(p priced) { p.join("a:1", false); p.join("b:1", false) },
			func(p priced) []lua.Status { return []lua.Status{p.leave("a:1"), p.beat("b:1", true)} },
			[]lua.Status{lua.Freed, lua.Granted}, 19 + 7,
		},
		{
			"semaphore: acquire and release", func(p priced) { p.acquire("a:1", 1, false); p.release("a:1", 1) },
			func(p priced) []lua.Status { return []lua.Status{p.acquire("a:2", 1, false), p.release("a:2", 1)} },
			[]lua.Status{lua.Granted, lua.Freed}, 14,
		},
		{
			"semaphore: acquire and release beside another", func(p priced) { p.acquire("a:1", 1, false) },
			func(p priced) []lua.Status { return []lua.Status{p.acquire("b:2", 1, false), p.release("b:2", 1)} },
			[]lua.Status{lua.Granted, lua.Freed}, 8 + 7,
		},
		{
			"semaphore: try what is in use", func(p priced) { p.acquire("a:1", 8, false) },
			func(p priced) []lua.Status { return []lua.Status{p.acquire("b:1", 1, true)} },
			[]lua.Status{lua.Busy}, 7,
		},
		{
			"semaphore: the first that waits", func(p priced) { p.acquire("a:1", 8, false) },
			func(p priced) []lua.Status { return []lua.Status{p.acquire("b:1", 1, false)} },
			[]lua.Status{lua.Queued}, 11,
		},
		{
			"semaphore: a heartbeat of one waiter", func(p priced) { p.acquire("a:1", 8, false); p.acquire("b:1", 1, false) },
			func(p priced) []lua.Status { return []lua.Status{p.beatPermits("b:1", 1, false)} },
			[]lua.Status{lua.Queued}, 20,
		},
		{
			"semaphore: release and hand over", func(p priced) { p.acquire("a:1", 8, false); p.acquire("b:1", 1, false) },
			func(p priced) []lua.Status { return []lua.Status{p.release("a:1", 8), p.beatPermits("b:1", 1, true)} },
			[]lua.Status{lua.Freed, lua.Granted}, 21 + 10,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := priced{t, dial(t, startServer(t).addr, 3, func(o *redis.Options) { o.PoolSize, o.ReadTimeout = 1, time.Minute })}
			for range 2 { // by the first the server learns the scripts
				require.NoError(t, p.rdb.FlushAll(t.Context()).Err())
				c.given(p)
				require.NoError(t, p.rdb.ConfigResetStat(t.Context()).Err())
				require.Equal(t, c.want, c.does(p))
			}
			require.Equal(t, c.commands, p.commands())
		})
	}
}
