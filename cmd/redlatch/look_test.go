package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
)

// scene is a server with a held mutex that has a queue, and a semaphore that has one.
type scene struct {
	url    string
	locks  *redlatch.Client
	hold   *redlatch.Hold
	permit *redlatch.Permit
}

func newScene(t *testing.T) *scene {
	t.Helper()
	server := redistest.Start(t)
	// A busy machine must not end a lease or a heartbeat. Below a minute they appear as seconds.
	const long = 50 * time.Second
	s := &scene{url: server.URL(), locks: newLocks(t, server.Client(t), redlatch.WithPrefix("svc:"), redlatch.WithLease(long), redlatch.WithHeartbeat(long))}
	var err error
	s.hold, err = s.locks.FairMutex("door").Lock(t.Context())
	require.NoError(t, err)
	s.permit, err = s.locks.Semaphore("render", 3).Acquire(t.Context(), 2)
	require.NoError(t, err)
	t.Cleanup(func() { runtime.KeepAlive(s) })
	for _, wait := range []func(redlatch.LockOption){
		func(placed redlatch.LockOption) { _, _ = s.locks.FairMutex("door", placed).Lock(t.Context()) },
		func(placed redlatch.LockOption) {
			_, _ = s.locks.Semaphore("render", 3, placed).Acquire(t.Context(), 2)
		},
	} {
		placed := make(chan struct{}, 100)
		go wait(redlatch.WithWaitCallback(func(redlatch.Waiting) { placed <- struct{}{} }))
		select {
		case <-placed:
		case <-time.After(guardTime):
			t.Fatal("no place in a queue")
		}
	}
	return s
}

func (s *scene) run(t *testing.T, args ...string) result {
	t.Helper()
	return runIn(t, s.env(), args...)
}

func (s *scene) env() []string { return []string{"REDIS_URL=" + s.url, "REDLATCH_PREFIX=svc:"} }

// decode reads the output of --json.
func decode(t *testing.T, r result) (value map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.out), &value), r.out+r.err)
	return value
}

func TestLsListsWhatIsHeldOrWaitedFor(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	idle, err := s.locks.Mutex("idle").Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, idle.Unlock(t.Context()))

	got := s.run(t, "ls")
	require.Equal(t, 0, got.code, got.err)
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	require.Len(t, lines, 3, got.out)
	require.Regexp(t, `^NAME +KIND +HOLDER +HELD +LEASE +WAITERS +OLDEST$`, lines[0])
	require.Regexp(t, `^door +mutex +the test +[\dm.]+s +\d+s +1 +[\dm.]+s$`, lines[1])
	require.Regexp(t, `^render +semaphore +2 of 3 in use +[\dm.]+s +\d+s +1 +[\dm.]+s$`, lines[2])

	require.Contains(t, s.run(t, "ls", "--all").out, "\nidle ")
	require.NotContains(t, s.run(t, "ls", "d*").out, "render")
	empty := s.run(t, "ls", "nothing*")
	require.Equal(t, 0, empty.code)
	require.Empty(t, empty.out)
	require.Contains(t, empty.err, "--hashes")
	require.Equal(t, 64, s.run(t, "ls", "[").code)
	require.Equal(t, 64, s.run(t, "ls", "--limit", "0").code)

	out := decode(t, s.run(t, "ls", "--json", "door"))
	require.Equal(t, false, out["truncated"])
	door := out["names"].([]any)[0].(map[string]any)
	require.Equal(t, "door", door["name"])
	mutex := door["mutex"].(map[string]any)
	require.Equal(t, s.hold.ID(), mutex["holder"])
	require.EqualValues(t, 1, mutex["waiting"])
	require.Equal(t, true, decode(t, s.run(t, "ls", "--json", "--all", "--limit", "1"))["truncated"])
	require.Equal(t, "{\n  \"names\": [],\n  \"truncated\": false\n}\n", s.run(t, "ls", "--json", "nothing").out)
}

// Redis knows names for an hour or two after their last use. They must not hide a lock that is
// held.
func TestIdleNamesHideNoHeldLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	_, err := server.Client(t).Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 2 * mostCompleted {
			p.Set(t.Context(), fmt.Sprintf("redisson_lock_token:{idle:%d}", i), 1, time.Hour)
		}
		return nil
	})
	require.NoError(t, err)
	locks := newLocks(t, server.Client(t))
	holds := []any{}
	hold := func(name string) {
		h, err := locks.Mutex(name).Lock(t.Context())
		require.NoError(t, err)
		holds = append(holds, h)
	}
	hold("nightly")
	for _, args := range [][]string{{"ls"}, {"top", "--once"}} {
		got := run(t, server.URL(), append(args, "--limit", "1")...)
		require.Equal(t, 0, got.code, got.err)
		require.Contains(t, got.out, "\nnightly ")
		require.Empty(t, got.err)
		got = run(t, server.URL(), append(args, "--limit", "3", "--all")...)
		require.Contains(t, got.out, "\nnightly ")
		require.Contains(t, got.err, "WARNING: this list is cut at 3 names, and Redis has more names;")
	}
	out := decode(t, run(t, server.URL(), "ls", "--limit", "1", "--json"))
	require.Len(t, out["names"], 1)
	require.Equal(t, false, out["truncated"])
	words, _ := completions(t, []string{"REDIS_URL=" + server.URL()}, "show", "")
	require.Len(t, words, mostCompleted)
	require.Contains(t, words, "nightly")

	hold("weekly")
	for _, args := range [][]string{{"ls"}, {"top", "--once"}} {
		got := run(t, server.URL(), append(args, "--limit", "1")...)
		require.Equal(t, 0, got.code, got.err)
		require.Contains(t, got.err, "WARNING: this list is cut at 1 names, and Redis has more names that somebody holds or waits for;")
		require.NotContains(t, got.err, "nobody")
	}
	require.Equal(t, true, decode(t, run(t, server.URL(), "ls", "--limit", "1", "--json"))["truncated"])
	runtime.KeepAlive(holds)
}

func TestShowAnswersAtThreeInTheMorning(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	got := s.run(t, "show", "door")
	require.Equal(t, 0, got.code, got.err)
	require.Contains(t, got.out, "holder:      "+s.hold.ID())
	require.Contains(t, got.out, fmt.Sprint("last fence:  ", s.hold.Fence()))
	require.Regexp(t, `description: the test\n  holds:       1\n  since:       .*, for [\dm.]+s\n  lease left:  \d+s`, got.out)
	require.Regexp(t, `queue:       1 wait\n  # +WAITER +WAITS +HEARTBEAT +DESCRIPTION\n  1 +\S+ +[\dm.]+s +[\d.]+s left +the test`, got.out)

	got = s.run(t, "show", "render")
	require.Contains(t, got.out, "2 of 3 in use")
	require.Regexp(t, s.permit.ID()+` +2 +[\dm.]+s +\d+s +the test`, got.out)
	require.Regexp(t, `  1 +\S+ +2 +[\dm.]+s +[\d.]+s left +the test`, got.out)

	out := decode(t, s.run(t, "show", "render", "--json"))
	semaphore := out["semaphore"].(map[string]any)
	require.EqualValues(t, 3, semaphore["limit"])
	require.Equal(t, s.permit.ID(), semaphore["permits"].([]any)[0].(map[string]any)["id"])

	got = s.run(t, "show", "unused")
	require.Equal(t, result{0, "name: unused\nnobody has used this name lately, so it is free\n", ""}, got)
	require.Equal(t, []any{}, decode(t, s.run(t, "show", "unused", "--json"))["kinds"])
	require.Equal(t, 64, s.run(t, "show", "a\nb").code)
}

func TestShowFindsOutWhetherTheHolderLives(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locks := newLocks(t, server.Client(t))
	dead, err := locks.Mutex("dead", redlatch.WithLease(time.Hour), redlatch.WithoutRenewal()).Lock(t.Context())
	require.NoError(t, err)
	before := scriptCalls(t, server)
	p := start(t, server.URL(), "show", "--alive", "dead")
	const many = 12 // more than what it calls before it watches
	eventually(t, func() bool { return scriptCalls(t, server) > before+many }, "it watches")
	_, err = locks.Mutex("dead").ForceRelease(t.Context(), dead.ID())
	require.NoError(t, err)
	require.Equal(t, 1, p.wait())
	require.Contains(t, p.out.String(), "no: "+dead.ID()+" has released the lock, or somebody took it away")
	require.Contains(t, p.out.String(), "mutex: free", "nothing stale")

	alive, err := locks.Mutex("alive", redlatch.WithRenewInterval(50*time.Millisecond)).Lock(t.Context())
	require.NoError(t, err)
	got := run(t, server.URL(), "show", "--alive", "alive")
	require.Equal(t, 0, got.code)
	require.Contains(t, got.out, "yes: it has just renewed its lease")
	require.NoError(t, alive.UnlockAfter(t.Context(), time.Hour))
	got = run(t, server.URL(), "show", "--alive", "alive")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.out, "nobody holds it, and Redis keeps it")
	got = run(t, server.URL(), "show", "--alive", "unused")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.out, "alive: no: nobody holds it")

	// The server keeps this lock for a long time, and the reading begins near the end of its lease.
	crashed, err := locks.Mutex("crashed", redlatch.WithLease(time.Hour), redlatch.WithoutRenewal()).Lock(t.Context())
	require.NoError(t, err)
	const left = 8 * time.Second // a busy machine reads twice in the second half
	require.NoError(t, server.Control().PExpire(t.Context(), "crashed", left).Err())
	got = run(t, server.URL(), "show", "--alive", "--json", "crashed")
	require.Equal(t, 1, got.code)
	mutex := decode(t, got)["mutex"].(map[string]any)
	require.Regexp(t, `^no renewal for [\d.]+s: the holder has crashed, is paused or is cut off from Redis; the lease ends in [\d.]+s$`, mutex["alive"])
	require.Equal(t, crashed.ID(), mutex["holder"])

	permit, err := locks.Semaphore("permits", 2).Acquire(t.Context(), 1)
	require.NoError(t, err)
	got = run(t, server.URL(), "show", "--alive", "permits")
	require.Equal(t, 64, got.code)
	require.Contains(t, got.err, "--alive is for mutexes")
	runtime.KeepAlive([]any{dead, crashed, permit})
}

func TestTheLeaseShowsWhetherTheHolderLives(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_000_000, 0)
	const me, kept = "a:1", "kept-5f0c6f0e-6b8e-4d0a-9a38-0a3d1b8f3a11:7"
	read := func(at, left time.Duration, holder string) (time.Time, *lock.Info) {
		return begin.Add(at), &lock.Info{Holder: holder, Remaining: left}
	}
	type reading struct {
		at, left time.Duration
		holder   string
	}
	const s = time.Second
	for want, readings := range map[string][]reading{
		"":                                   {{0, 30 * s, me}, {10 * s, 20 * s, me}},
		"yes: it has just renewed its lease": {{0, 21 * s, me}, {s, 20 * s, me}, {2 * s, 30 * s, me}},
		"no renewal for 15s: the holder has crashed, is paused or is cut off from Redis; the lease ends in 15s": {{0, 30 * s, me}, {14 * s, 16 * s, me}, {15 * s, 15 * s, me}},
		"no: a:1 has released the lock, or somebody took it away":                                               {{0, 30 * s, me}, {10 * s, 20 * s, me}, {29 * s, 0, ""}},
		"no: the lease of a:1 ran out":  {{0, 30 * s, me}, {14 * s, 16 * s, me}, {30 * s, 30 * s, "b:2"}},
		"no: nobody holds it":           {{0, 30 * s, kept}},
		"unknown: the lease has no end": {{0, -1, me}},
	} {
		w := leaseWatch{}
		for i, r := range readings {
			at, info := read(r.at, r.left, r.holder)
			got := w.observe(info, at, at)
			if i < len(readings)-1 {
				require.Empty(t, got, want)
				continue
			}
			require.Equal(t, lifeSign{want, strings.HasPrefix(want, "yes")}, got)
		}
	}
}

// scriptCalls returns how many scripts the server has run.
func scriptCalls(t *testing.T, server *redistest.Server) (n int) {
	t.Helper()
	stats, err := server.Control().Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for _, match := range regexp.MustCompile(`cmdstat_evalsha(?:_ro)?:calls=(\d+)`).FindAllStringSubmatch(stats, -1) {
		calls, err := strconv.Atoi(match[1])
		require.NoError(t, err)
		n += calls
	}
	return n
}

func TestHostileTextIsHarmless(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	ctx := t.Context()
	const java = "5f0c6f0e-6b8e-4d0a-9a38-0a3d1b8f3a11:7"
	const hostile = "a\x1b[31m\u202eb\u200bc\ufe0f\u009b\nx\t\U000e0041"
	require.NoError(t, rdb.HSet(ctx, "door", java, 1, "redlatch:about", hostile).Err())
	require.NoError(t, rdb.Expire(ctx, "door", time.Hour).Err())
	require.NoError(t, rdb.Set(ctx, "redisson_lock_token:{door}", 1, 0).Err())
	require.NoError(t, rdb.HSet(ctx, hostile, java, 1).Err())
	require.NoError(t, rdb.Set(ctx, "redisson_lock_token:{"+hostile+"}", 1, 0).Err())
	for _, args := range [][]string{
		{"ls"}, {"ls", "--json"}, {"show", "door"}, {"show", "door", "--json"}, {"show", hostile}, {"run", "-n", "door", "--", "true"}, {"wait", "-w", "0", "door"},
		{"ls", hostile + "["}, {"run", "-v", "-w", "0", hostile, "--", "true"}, {"release", "door", "--yes", "--expected", hostile}, {hostile},
		{"remove-waiter", "door", hostile, "--yes"}, {"remove-waiter", hostile, "x", "--yes"}, {"remove-waiter", "door", hostile, "--yes", "--json"},
		{"resize", "door", hostile}, {"resize", hostile, "3"}, {"resize", "door", "3"},
	} {
		got := run(t, server.URL(), args...)
		for _, r := range got.out + got.err {
			require.False(t, r != '\n' && r < ' ' || r >= 0x7f && r != '…' && r != '→', "%q of %q: %q", r, args, got.out+got.err)
		}
		require.NotEmpty(t, got.out+got.err)
	}
	require.Contains(t, run(t, server.URL(), "show", "door").out, `a\x1b[31m\u202eb\u200bc\ufe0f\u009b\nx\t\U000e0041`)
	out := decode(t, run(t, server.URL(), "show", "door", "--json"))
	require.Equal(t, hostile, out["mutex"].(map[string]any)["description"], "JSON keeps what Redis has")
}

func TestWaitReturnsWhenTheLockIsFree(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	got := s.run(t, "wait", "-w", "0", "door")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.err, "not free: "+s.hold.ID()+" (the test) has it")
	out := decode(t, s.run(t, "wait", "-w", "0", "door", "--json"))
	require.Equal(t, []any{s.hold.ID(), "the test", false}, []any{out["holder"], out["description"], out["free"]}, "the id as in show")
	require.Equal(t, 1, s.run(t, "wait", "-w", "0", "render", "--permits", "1").code, "somebody waits already")
	out = decode(t, s.run(t, "wait", "-w", "0", "render", "--permits", "1", "--json"))
	require.Equal(t, []any{nil, 2.0, 1.0}, []any{out["holder"], out["in_use"], out["waiting"]})
	require.Equal(t, 64, s.run(t, "wait", "render", "--permits", "4").code)
	require.Equal(t, result{0, "", ""}, s.run(t, "wait", "unused"))
	require.Equal(t, result{0, "", ""}, s.run(t, "wait", "unused", "--permits", "2"))

	mu := s.locks.Mutex("plain")
	hold, err := mu.Lock(t.Context())
	require.NoError(t, err)
	p := command(t, []string{"REDIS_URL=" + s.url}, "wait", "--prefix", "svc:", "--json", "plain").start()
	eventually(t, func() bool { return strings.Contains(s.run(t, "show", "plain").out, "1 clients listen") }, "a listener")
	require.NoError(t, hold.Unlock(t.Context()))
	require.Equal(t, 0, p.wait())
	require.Equal(t, true, decode(t, result{out: p.out.String()})["free"])
	info, err := mu.Inspect(t.Context())
	require.NoError(t, err)
	require.False(t, info.Held(), "wait does not take it")
}

func TestReleaseIsGuarded(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	other := "5f0c6f0e-6b8e-4d0a-9a38-0a3d1b8f3a11:7"
	require.Equal(t, 64, s.run(t, "release", "door").code, "who?")
	require.Equal(t, 64, s.run(t, "release", "door", "--expected", s.hold.ID()).code, "nobody can answer")
	require.Equal(t, 64, s.run(t, "remove-waiter", "door", other).code, "nobody can answer")
	got := s.run(t, "release", "door", "--yes", "--expected", other)
	require.Equal(t, 1, got.code)
	require.Contains(t, got.err, s.hold.ID()+" (the test) has the mutex")
	select {
	case <-s.hold.Lost():
		t.Fatal("something was released")
	default:
	}
	require.Equal(t, result{0, "released " + s.hold.ID() + "\n", ""}, s.run(t, "release", "door", "--yes", "--expected", s.hold.ID()))
	require.Equal(t, 1, s.run(t, "release", "door", "--yes", "--expected", s.hold.ID()).code, "the next one has it")
	require.Equal(t, true, decode(t, s.run(t, "release", "--json", "render", "--yes", "--expected", s.permit.ID()))["released"])
	require.Equal(t, false, decode(t, s.run(t, "release", "--json", "render", "--yes", "--expected", s.permit.ID()))["released"])
}

func TestRemoveWaiter(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, name := range []string{"door", "render"} {
		waiters, _, err := s.locks.FairMutex(name).Queue(t.Context(), 0, 1)
		if name == "render" {
			waiters, _, err = s.locks.Semaphore(name, 3).Queue(t.Context(), 0, 1)
		}
		require.NoError(t, err)
		require.Equal(t, result{0, "removed " + waiters[0].ID + "\n", ""}, s.run(t, "remove-waiter", "-y", name, waiters[0].ID))
		require.Equal(t, 1, s.run(t, "remove-waiter", "-y", name, waiters[0].ID).code)
	}
}

func TestResize(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	require.Equal(t, result{0, "the limit is 5 now; it was 3\n", ""}, s.run(t, "resize", "render", "5"))
	info, err := s.locks.Semaphore("render", 3).Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{5, 3}, []int{info.Limit, info.Declared}, "programs go on to pass 3")
	require.EqualValues(t, 5, decode(t, s.run(t, "resize", "--json", "render", "4"))["before"])
	require.Equal(t, 1, s.run(t, "resize", "unused", "4").code)
	for _, limit := range []string{"0", "x", "-1", "99999999999"} {
		require.Equal(t, 64, s.run(t, "resize", "render", "--", limit).code, limit)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	got := run(t, server.URL(), "doctor", "--strict")
	require.Equal(t, 0, got.code, got.out)
	require.NotContains(t, got.out, "warning")
	for _, line := range []string{"version", "eviction", "persistence", "replicas", "clock", "latency", "mutex", "fair mutex", "semaphore", "messages", "ls"} {
		require.Regexp(t, `(?m)^ok +`+line+`( \([\d.:]+\))?: `, got.out)
	}
	ctx := t.Context()
	control := server.Control()
	keys, err := control.Keys(ctx, "*redlatch-doctor*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		left, err := control.PTTL(ctx, key).Result()
		require.NoError(t, err)
		require.NotEqual(t, time.Duration(-1), left, "%s stays for ever", key)
		require.LessOrEqual(t, left, 4*guardTime, "%s stays for longer than twice the life of a fence, which is two leases", key)
	}

	problem := func(env []string, text string) {
		t.Helper()
		got := runIn(t, append(env, "REDIS_URL="+server.URL()), "doctor")
		require.Equal(t, 1, got.code, got.out)
		require.Regexp(t, text, got.out)
	}
	require.NoError(t, control.ConfigSet(ctx, "maxmemory", "100mb").Err())
	require.NoError(t, control.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	problem(nil, `problem +eviction .*allkeys-lru.*\n +→ set maxmemory-policy noeviction`)
	require.NoError(t, control.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	require.NoError(t, control.ConfigSet(ctx, "maxmemory", "1").Err())
	problem(nil, `problem +mutex: .*OOM.*\n +→ Redis has no memory`)
	require.NoError(t, control.ConfigSet(ctx, "maxmemory", "0").Err())

	user := func(rules ...string) []string {
		require.NoError(t, control.ACLSetUser(ctx, "limited", append([]string{"reset", "on", ">pw"}, rules...)...).Err())
		return []string{"REDIS_USERNAME=limited", "REDIS_PASSWORD=pw"}
	}
	problem(user("~*", "&*", "+@all", "-evalsha", "-eval"), `(?s)problem +mutex: [^\n]*\n +→ grant what docs/security.md lists.*problem +fair mutex.*problem +semaphore`)
	problem(user("~*", "+@all"), `(?s)ok +mutex.*problem +messages: [^\n]*\n +→ let this user subscribe`)
	problem(user("~*", "&*", "+@all", "-zrangebyscore"), `(?s)ok +mutex.*problem +semaphore: [^\n]*\n +→ grant`)
	got = runIn(t, append(user("~*", "&*", "+@all", "-info", "-scan"), "REDIS_URL="+server.URL()), "doctor")
	require.Equal(t, 0, got.code, got.out)
	require.Regexp(t, `(?s)warning +server.*warning +ls: `, got.out)
}

func TestDoctorAdvisesForEachError(t *testing.T) {
	t.Parallel()
	for text, advice := range map[string]string{
		"NOPERM this user has no permissions": "grant", "ERR The user executing the script can't run this command": "grant",
		"OOM command not allowed when used memory > 'maxmemory'.": "memory", "READONLY You can't write against a read only replica.": "master",
		"MISCONF Redis is configured to save RDB snapshots": "disk", "LOADING Redis is loading the dataset in memory": "wait",
		"NOAUTH Authentication required.": "password", "WRONGPASS invalid username-password pair": "password",
		"NOREPLICAS Not enough good replicas to write.": "replicas", "CLUSTERDOWN The cluster is down": "CLUSTER INFO",
		"ERR something else": "troubleshooting.md",
	} {
		got := toDoAfter(fmt.Errorf("redlatch: lock \"x\": redis refused: %w", errors.New(text)), "grant")
		require.Contains(t, got, advice, text)
		require.Equal(t, advice == "grant", got == "grant", text)
	}
}

func TestDoctorInAClusterAndOnAReplica(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, 0)
	got := run(t, cluster.Nodes[0].URL(), "doctor", "--json")
	require.Equal(t, 0, got.code, got.out)
	var findings []finding
	require.NoError(t, json.Unmarshal([]byte(got.out), &findings))
	servers := map[string]bool{}
	for _, f := range findings {
		if f.Check == "version" {
			servers[f.Server] = true
		}
	}
	require.Len(t, servers, 2)

	master := redistest.Start(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", host, port)
	got = run(t, replica.URL(), "doctor")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.out, "this server is a replica of "+host+":"+port)
}

// A server double says little in INFO. Its locks are tried all the same.
func TestDoctorOfAServerThatSaysNothing(t *testing.T) {
	t.Parallel()
	got := run(t, "redis://"+redistest.Embedded(t).Addr(), "doctor")
	require.Equal(t, 0, got.code, got.out)
	require.Regexp(t, `(?s)warning +server .*INFO does not say.*ok +mutex: .*ok +semaphore: `, got.out)
	require.NotContains(t, got.out, "too old")
}
