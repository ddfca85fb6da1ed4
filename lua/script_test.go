package lua_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/lua"
)

// story is every script once, each with what it must answer.
func story() []row {
	return []row{
		{name: "acquire", call: acquire("a:1"), reply: "granted 5000000000000001"},
		{name: "re-entry", call: acquire("a:1", holds(2)), reply: "granted 5000000000000001"},
		{name: "inner release", call: release("a:1", 1), reply: "kept"},
		{name: "renew", call: renew("a:1", 2*hour), reply: "extended"},
		{name: "transfer", call: transfer("a:1", "a:2"), reply: "granted 5000000000000002"},
		{name: "inspect", call: inspect, reply: `"a:2" x1 2h "" fence 5000000000000002`},
		{name: "release", call: release("a:2", 0), reply: "freed, received by 0"},
		{name: "acquire again", call: acquire("a:3"), reply: "granted 5000000000000003"},
		{name: "keep", call: keepLock("a:3", 1, hour), reply: "kept"},
		{name: "force", call: force(""), reply: "freed kept-x:1"},

		{name: "join", call: join("a:4"), reply: "granted 5000000000000004"},
		{name: "join behind it", call: join("b:1"), reply: "queued 1 of 1, held by a:4 for 4h 5000000000000004 host-1"},
		{name: "beat", call: beat("b:1"), reply: "1 of 1, held by a:4 for 4h 5000000000000004 host-1"},
		{name: "queue", call: queue(0, 1), reply: "1: b:1 x1 1h0m0s host-1 1h"},
		{name: "find", call: find("b:1", "", 1), reply: "queued b:1 x1 1h0m0s host-1"},
		{name: "remove", call: removeWaiter("b:1"), reply: "true"},
		{name: "join again", call: join("c:1"), reply: "queued 1 of 1, held by a:4 for 4h 5000000000000004 host-1"},
		{name: "leave", call: leave("a:4"), reply: "freed, received by 0"},
		{name: "force fair", call: forceFair("c:1"), reply: "freed c:1"},

		{name: "take", call: permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			r, err := take(ctx, rdb, "a:1", permitCall{units: 3})
			return statusNames[r.Status], err
		}), reply: "granted"},
		{name: "renew permits", call: permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			r, err := lua.RenewPermits(ctx, rdb, 0, []lua.PermitRenewal{
				{Permits: permitNames.Permits, Holders: permitNames.Holders, Acquisition: "a:1", Units: 3, Lease: 3 * hour},
			})
			return r, err
		}), reply: fmt.Sprint([]lua.RenewAnswer{lua.RenewDone})},
		{name: "keep a permit", call: keepPermit("a:1", 1, permitCall{units: 3}), reply: "kept"},
		{name: "force a kept permit", call: permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			units, _, err := lua.ForceReleasePermits(ctx, rdb, semaphoreKeys, "kept-x:1", 0, key.ClientPrefix)
			return units, err
		}), reply: "3"},
		{name: "take again", call: permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			r, err := take(ctx, rdb, "a:1", permitCall{units: 3})
			return statusNames[r.Status], err
		}), reply: "granted"},
		{name: "take too much", call: permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			r, err := take(ctx, rdb, "b:1", permitCall{units: 6})
			return statusNames[r.Status], err
		}), reply: "queued"},
		{name: "beat permits", call: permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			w := permitWaiter("b:1", permitCall{units: 6})
			r, err := lua.PermitHeartbeats(ctx, rdb, 0, key.ClientPrefix, true, []lua.PermitHeartbeat{{Keys: semaphoreKeys, Waiter: w, Limit: 8}})
			return len(r), err
		}), reply: "1"},
		{name: "resize", call: permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			r, err := lua.Resize(ctx, rdb, lua.ResizeParams{Keys: semaphoreKeys, Limit: 9, Declared: 8, VoidAfter: never, Stamp: 1, ClientChannels: key.ClientPrefix})
			return r.Before, err
		}), reply: "8"},
		{name: "inspect permits", call: permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			r, err := lua.InspectPermits(ctx, rdb, semaphoreKeys, 10)
			return r.InUse, err
		}), reply: "9"},
		{name: "force permits", call: permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			units, _, err := lua.ForceReleasePermits(ctx, rdb, semaphoreKeys, "b:1", 0, key.ClientPrefix)
			return units, err
		}), reply: "6"},
		{name: "give back", call: permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			r, err := lua.ReleasePermits(ctx, rdb, lua.ReleasePermitsParams{
				Keys: semaphoreKeys, Waiter: permitWaiter("a:1", permitCall{units: 3}), ClientChannels: key.ClientPrefix,
			})
			return statusNames[r.Status], err
		}), reply: "freed"},
		{name: "keep fences", call: keepFences(hour), reply: "0"},
		{name: "echo", call: permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			return lua.Echo(ctx, rdb, "echo", "echoes", "1")
		}), reply: "0"},
	}
}

func permits(call func(context.Context, lua.Redis) (any, error)) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		v, err := call(ctx, rdb)
		return fmt.Sprint(v), err
	}
}

// hashes notes which scripts a client sends.
type hashes map[string]bool

func (h hashes) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h hashes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h hashes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			h[fmt.Sprint(cmd.Args()[1])] = true
		}
		return next(ctx, cmd)
	}
}

func TestTheStoryHasEveryScript(t *testing.T) {
	files, err := filepath.Glob("*/*.lua")
	require.NoError(t, err)
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasPrefix(f, "include") })
	sent := hashes{}
	rdb := dial(t, miniredis.RunT(t).Addr(), 3, nil)
	rdb.AddHook(sent)
	for _, r := range story() {
		_, err := r.call(t.Context(), rdb)
		require.NoError(t, err, r.name)
	}
	require.Len(t, sent, len(files))
}

// executions says how many scripts the server has run so far by its own count,
// which includes those it refused because it did not know them.
var statsLine = regexp.MustCompile(`cmdstat_(evalsha|eval):calls=(\d+)`)

func executions(t *testing.T, rdb *redis.Client, refused int) int {
	t.Helper()
	info, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	sum := -refused
	for _, m := range statsLine.FindAllStringSubmatch(info, -1) {
		n, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		sum += n
	}
	return sum
}

func TestAForgottenScriptIsSentAgainAndRunsOnce(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		prepare(t, b.rdb, "SET @F 5000000000000000")
		cut := &cutter{}
		rdb := dial(t, b.addr, 3, func(o *redis.Options) { o.Dialer = cut.Dial })
		for i, r := range story() {
			require.NoError(t, b.rdb.ScriptFlush(t.Context()).Err())
			got, err := r.call(t.Context(), rdb)
			require.NoError(t, err, r.name)
			require.Equal(t, r.reply, got, r.name)
			require.EqualValues(t, 2*(i+1), cut.Scripts.Load(), "one evalsha and one eval each")
			if b.mini == nil {
				require.Equal(t, i+1, executions(t, b.rdb, i+1), r.name)
			}
		}
	})
}

func TestAKnownScriptIsSentByItsHashAlone(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		cut := &cutter{}
		rdb := dial(t, b.addr, 3, func(o *redis.Options) { o.Dialer = cut.Dial })
		for range 2 {
			require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
			prepare(t, b.rdb, "SET @F 5000000000000000")
			cut.Scripts.Store(0)
			for _, r := range story() {
				got, err := r.call(t.Context(), rdb)
				require.NoError(t, err, r.name)
				require.Equal(t, r.reply, got, r.name)
			}
		}
		require.EqualValues(t, len(story()), cut.Scripts.Load())
	})
}

// go-redis sends a script again after a lost reply unless its options forbid that.
func TestALostReplyIsReportedAndNothingIsSentAgain(t *testing.T) {
	for name, mode := range map[string]cutMode{"connection ends": cutReply, "silence": cutSilence} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, b *backend) {
				prepare(t, b.rdb, "SET @F 5000000000000000")
				cut := &cutter{}
				rdb := dial(t, b.addr, 3, func(o *redis.Options) { o.Dialer, o.MaxRetries = cut.Dial, 5 })
				// The server learns the scripts, so that each is one command.
				for _, r := range story() {
					_, err := r.call(t.Context(), b.rdb)
					require.NoError(t, err)
				}
				prepare(t, b.rdb, "FLUSHALL", "SET @F 5000000000000000", "PING")
				before := int64(0)
				if b.mini == nil {
					before = int64(executions(t, b.rdb, 0))
				}
				for i, r := range story() {
					require.NoError(t, rdb.Ping(t.Context()).Err())
					cut.Set(mode)
					_, err := r.call(t.Context(), rdb)
					cut.Set(cutNothing)
					require.Error(t, err, r.name)
					fault, _ := lua.Classify(err)
					require.Equal(t, lua.Unanswered, fault, "%s: %v", r.name, err)
					require.EqualValues(t, i+1, cut.Scripts.Load(), "%s was sent again", r.name)
					require.EqualValues(t, i+1, cut.Cuts.Load())
					if b.mini == nil {
						require.EqualValues(t, i+1, int64(executions(t, b.rdb, 0))-before, "%s ran again", r.name)
					}
					if r.name == "transfer" {
						// It ran, and the copy that a caller may send says so.
						got, err := r.call(t.Context(), b.rdb)
						require.NoError(t, err)
						require.Equal(t, r.reply, got)
						before++
					}
				}
				left, err := inspect(t.Context(), b.rdb)
				require.NoError(t, err)
				require.Equal(t, `"" x0 without end "" fence 5000000000000005`, left)
				in, err := lua.InspectPermits(t.Context(), b.rdb, semaphoreKeys, 10)
				require.NoError(t, err)
				require.Zero(t, in.InUse+in.Waiting)
			})
		})
	}
}

func TestAfterALostReplyACopyIsAnsweredTruly(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		for _, c := range []struct {
			row
			copy string
		}{
			{row{"a grant", []string{"SET @F 5000000000000000"}, acquire("a:1"), "", "lock 1h a:1:1; fence forever 5000000000000001"},
				"granted 5000000000000001"},
			{row{"a re-entry", []string{"HSET @L a:1 1", "PEXPIRE @L 3600000", "SET @F 5000000000000000"}, acquire("a:1", holds(2)), "",
				"lock 1h a:1:2; fence forever 5000000000000000"}, "granted 5000000000000000"},
			{row{"an inner release", []string{"HSET @L a:1 3", "PEXPIRE @L 3600000"}, release("a:1", 2), "", "lock 1h a:1:2"}, "kept"},
			{row{"a release", []string{"HSET @L a:1 3"}, release("a:1", 0), "", ""}, "gone"},
			{row{"a transfer", []string{"HSET @L a:1 3", "SET @F 5000000000000000"}, transfer("a:1", "a:2"), "",
				"lock 2h a:2:1; fence forever 5000000000000001"}, "granted 5000000000000001"},
			{row{"a renewal", []string{"HSET @L a:1 3"}, renew("a:1", hour), "", "lock 1h a:1:3"}, "extended"},
			{row{"a force release", []string{"HSET @L a:1 3"}, force("a:1"), "", ""}, "nobody"},
		} {
			require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
			prepare(t, b.rdb, c.given...)
			cut := &cutter{}
			rdb := dial(t, b.addr, 3, func(o *redis.Options) { o.Dialer = cut.Dial })
			_, err := inspect(t.Context(), rdb) // connects
			require.NoError(t, err)
			_, err = c.call(t.Context(), b.rdb) // the server learns the script
			require.NoError(t, err)
			require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
			prepare(t, b.rdb, c.given...)
			cut.Set(cutReply)
			_, err = c.call(t.Context(), rdb)
			require.Error(t, err, c.name)
			require.EqualValues(t, 1, cut.Cuts.Load())
			require.Equal(t, c.after, keyspace(t, b.rdb), c.name)
			cut.Set(cutNothing)
			got, err := c.call(t.Context(), rdb)
			require.NoError(t, err, c.name)
			require.Equal(t, c.copy, got, c.name)
			require.Equal(t, c.after, keyspace(t, b.rdb), c.name)
		}
	})
}

func TestAClusterRunsEveryScriptOnce(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--cluster-enabled", "yes")
	node := dial(t, s.addr, 2, nil)
	slots := make([]int, 16384)
	for i := range slots {
		slots[i] = i
	}
	require.NoError(t, node.ClusterAddSlots(t.Context(), slots...).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(node.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	}, 20*time.Second, 10*time.Millisecond)
	cut := &cutter{}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.addr}, Dialer: cut.Dial, MaxRedirects: 5})
	t.Cleanup(func() { _ = rdb.Close() })

	prepare(t, node, "SET @F 5000000000000000")
	for i, r := range story() {
		require.NoError(t, node.ScriptFlush(t.Context()).Err())
		got, err := r.call(t.Context(), rdb)
		require.NoError(t, err, r.name)
		require.Equal(t, r.reply, got, r.name)
		require.EqualValues(t, 2*(i+1), cut.Scripts.Load())
		require.Equal(t, i+1, executions(t, node, i+1), r.name)
	}
	_, err := acquire("b:1")(t.Context(), rdb) // the server learns the script
	require.NoError(t, err)
	ran, sent := executions(t, node, 0), cut.Scripts.Load()
	cut.Set(cutReply)
	_, err = acquire("b:1")(t.Context(), rdb)
	fault, _ := lua.Classify(err)
	require.Equal(t, lua.Unanswered, fault, "%v", err)
	require.Equal(t, ran+1, executions(t, node, 0))
	require.Equal(t, sent+1, cut.Scripts.Load())
	cut.Set(cutNothing)

	// Names of one slot, and only those, go into one call.
	_, err = lua.Renew(t.Context(), rdb, []lua.Renewal{{LockKey: "a", Acquisition: "a:1"}, {LockKey: "b", Acquisition: "a:1"}})
	fault, code := lua.Classify(err)
	require.Equal(t, "CROSSSLOT", code, "%v", err)
	require.Equal(t, lua.Refused, fault)
}

// A server that loses the connection in mid-reply, or says nothing at all, has
// maybe run the script.
func TestAConnectionThatEndsInAReplyLeavesTheOutcomeOpen(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{
		"nothing": "", "half a number": "*3\r\n:1\r\n:50", "no Redis": "HTTP/1.1 400 Bad Request\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					buf := make([]byte, 4096)
					for {
						n, err := c.Read(buf)
						if err != nil {
							break
						}
						if strings.Contains(string(buf[:n]), "evalsha") {
							_, _ = fmt.Fprint(c, reply)
							break
						}
						// Whatever go-redis asks when it connects is unknown here.
						for range strings.Count(string(buf[:n]), "*") {
							_, _ = fmt.Fprint(c, "-ERR unknown command\r\n")
						}
					}
					_ = c.Close()
				}
			}()
			t.Cleanup(func() { _ = l.Close(); <-done })
			rdb := dial(t, l.Addr().String(), 2, nil)
			_, err = acquire("a:1")(context.Background(), rdb)
			require.Error(t, err)
			fault, _ := lua.Classify(err)
			require.Equal(t, lua.Unanswered, fault, "%v", err)
		})
	}
}

// noScript is a server that knows no script, and a note of what was sent to it.
type noScript struct {
	lua.Redis

	sent []string // which script each command runs
}

func (n *noScript) Process(_ context.Context, cmd redis.Cmder) error {
	words := make([]string, len(cmd.Args()))
	for i, arg := range cmd.Args() {
		words[i] = fmt.Sprint(arg)
	}
	n.sent = append(n.sent, lua.ScriptName(words))
	return redisError("NOSCRIPT no matching script")
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// A command is known by its script, whether sent by hash or in full.
func TestRunsKnowsScriptsOnTheWire(t *testing.T) {
	server := &noScript{}
	_, _ = lua.Queue(t.Context(), server, "queue", "alive", 0, "", 1)
	_, _ = lua.InspectPermits(t.Context(), server, lua.SemaphoreKeys{}, 1)
	require.Equal(t, []string{"queue/list", "queue/list", "semaphore/inspect", "semaphore/inspect"}, server.sent)
	require.Empty(t, lua.ScriptName([]string{"EVAL", "return 1", "0"}))
	require.Empty(t, lua.ScriptName([]string{"GET", server.sent[0]}))
}
