package lua_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lua"
)

// denial is a command of a script, on a state, for one id: the matrix denies each Redis command
// that the user would need, one at a time.
type denial struct {
	script, name string
	given        func(t *testing.T, admin *redis.Client)
	call         func(context.Context, lua.Redis) (string, error)
	id           string // whose lock, units or place the command is about
	frees        bool   // what the id has ends, if the command succeeds
}

// standing is what anybody could notice: the fence, the limit, and what each id has and where it
// stands. Times do not count, so that a lease or a heartbeat may be extended.
type standing struct {
	fence int64
	limit string
	ids   map[string]string
}

func standingOf(t *testing.T, admin *redis.Client) standing {
	t.Helper()
	ctx, now := t.Context(), serverTime(t, admin).UnixMilli()
	s := standing{ids: map[string]string{}}
	s.fence, _ = admin.Get(ctx, names.Fence).Int64()
	for id, holds := range admin.HGetAll(ctx, names.Lock).Val() {
		if id != "redlatch:about" {
			s.ids[id] += " holds:" + holds
		}
	}
	units := map[string]int64{}
	for _, z := range admin.ZRangeWithScores(ctx, permitNames.Permits, 0, -1).Val() {
		id, weight, isEntry := strings.Cut(z.Member.(string), "#")
		if !isEntry {
			s.limit += fmt.Sprintf(" %s:%.0f", z.Member, z.Score)
			continue
		}
		w, err := strconv.ParseInt(weight, 10, 64)
		require.NoError(t, err)
		if int64(z.Score)%(1<<42) > now {
			units[id] += w
		}
	}
	for id, n := range units {
		s.ids[id] += fmt.Sprintf(" units:%d", n)
	}
	for what, keys := range map[string][]string{"queued": {names.Queue, permitNames.Queue}, "alive": {names.Alive, permitNames.Alive}} {
		for _, k := range keys {
			for _, z := range admin.ZRangeWithScores(ctx, k, 0, -1).Val() {
				if id, _, isWaiter := strings.Cut(z.Member.(string), " "); isWaiter {
					s.ids[id] += " " + what
				}
			}
		}
	}
	for id, parts := range s.ids {
		all := strings.Fields(parts)
		slices.Sort(all)
		s.ids[id] = strings.Join(all, " ")
	}
	return s
}

// halfDone says what a refused command has changed, or nothing. A free lock or free units may have
// gone to those who waited for them, as in any call.
func halfDone(id string, before, after standing) string {
	if before.limit != after.limit {
		return fmt.Sprintf("the limit was%s and is%s", before.limit, after.limit)
	}
	for other := range maps.Keys(joined(before.ids, after.ids)) {
		was, is := before.ids[other], after.ids[other]
		served := other != id && was == "alive queued" && (strings.HasPrefix(is, "holds") || strings.HasPrefix(is, "units"))
		if was != is && !served {
			return fmt.Sprintf("%s was %q and is %q", other, was, is)
		}
	}
	return ""
}

func joined(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func denials() (all []denial) {
	state := func(commands ...string) func(*testing.T, *redis.Client) {
		return func(t *testing.T, admin *redis.Client) { t.Helper(); prepare(t, admin, commands...) }
	}
	for name, fence := range map[string]string{
		"no fence": "PING", "fence ahead": "SET @F 5000000000000000 PX 3600000", "fence behind": "SET @F 7 PX 3600000",
		"fence for ever": "SET @F 5000000000000000",
	} {
		held := []string{"HSET @L a:1 1 redlatch:about host-1", "PEXPIRE @L 3600000", fence}
		free := state(fence)
		all = append(all, []denial{
			{"mutex/acquire", "free, " + name, free, acquire("a:1", about("me"), keepFor(3*hour)), "a:1", false},
			{"mutex/acquire", "free, fence for ever, " + name, free, acquire("a:1"), "a:1", false},
			{"mutex/acquire", "re-entry, " + name, state(held...), acquire("a:1", holds(2)), "a:1", false},
			{"mutex/keep", "held, " + name, state(held...), keepLock("a:1", 1, 3*hour), "a:1", false},
			{"mutex/transfer", "held, " + name, state(held...), transfer("a:1", "a:2"), "a:1", false},
			{"fair/join", "free, " + name, free, join("a:1", keepFence3h), "a:1", false},
			{"fair/join", "free, it is the first, " + name, state(append(bcQueued, fence)...), join("b:1", keepFence3h), "b:1", false},
			{"fair/join", "free, others wait, " + name, state(append(bcQueued, fence)...), join("d:1", keepFence3h), "d:1", false},
			{"fair/join", "held, " + name, state(held...), join("b:1"), "b:1", false},
			{"fair/join", "held, others wait, " + name, state(with(held, bcQueued)...), join("d:1"), "d:1", false},
			{"fair/beat", "free, it is the first, " + name, state(append(bcQueued, fence)...), beat("b:1"), "", false},
			{"fair/beat", "free, it is the second, " + name, state(append(bcQueued, fence)...), beat("c:1"), "", false},
			{"fair/beat", "held, " + name, state(with(held, bcQueued)...), beat("b:1"), "b:1", false},
			{"fair/leave", "held, " + name, state(held...), leave("a:1"), "a:1", true},
			{"fair/leave", "held, others wait, " + name, state(with(held, bcQueued)...), leave("a:1"), "a:1", true},
			{"fair/leave", "a place, held, " + name, state(with(held, bcQueued)...), leave("b:1"), "b:1", true},
			{"fair/leave", "a place, free, " + name, state(append(bcQueued, fence)...), leave("b:1"), "b:1", true},
			{"fair/force_release", "others wait, " + name, state(with(held, bcQueued)...), forceFair("a:1"), "a:1", true},
		}...)
	}
	all = append(all, []denial{
		{"mutex/release", "held", state(heldFair...), release("a:1", 0), "a:1", true},
		{"mutex/release", "an inner hold", state("HSET @L a:1 2", "PEXPIRE @L 3600000"), release("a:1", 1), "a:1", false},
		{"mutex/release", "others wait", state(with(heldFair, bcQueued)...), release("a:1", 0), "a:1", true},
		{"mutex/force_release", "held", state(heldFair...), force(""), "a:1", true},
		{"queue/remove", "the first", state(with(heldFair, bcQueued)...), removeWaiter("b:1"), "b:1", false},
	}...)
	permitsOf := func(given ...string) func(*testing.T, *redis.Client) {
		return func(t *testing.T, admin *redis.Client) {
			t.Helper()
			for _, g := range given {
				var who string
				var units int
				_, err := fmt.Sscan(g, &who, &units)
				require.NoError(t, err)
				_, err = take(t.Context(), admin, who, permitCall{units: units, keep: hour})
				require.NoError(t, err)
			}
		}
	}
	freed := func(given ...string) func(*testing.T, *redis.Client) {
		return func(t *testing.T, admin *redis.Client) {
			t.Helper()
			permitsOf(given...)(t, admin)
			require.NoError(t, admin.ZRem(t.Context(), permitNames.Permits, "a:1#1", "a:1#2", "a:1#4").Err())
		}
	}
	three, seven := permitCall{units: 3, keep: hour}, permitCall{units: 7}
	return append(all, []denial{
		{"semaphore/acquire", "new", permitsOf(), takePermits("d:1", three), "d:1", false},
		{"semaphore/acquire", "new, for ever", permitsOf(), takePermits("d:1", permitCall{units: 3}), "d:1", false},
		{"semaphore/acquire", "free", freed("a:1 7"), takePermits("d:1", three), "d:1", false},
		{"semaphore/acquire", "free, for ever", freed("a:1 7"), takePermits("d:1", permitCall{units: 3}), "d:1", false},
		{"semaphore/acquire", "beside others", permitsOf("a:1 3"), takePermits("d:1", three), "d:1", false},
		{"semaphore/acquire", "in use", permitsOf("a:1 7"), takePermits("d:1", three), "d:1", false},
		{"semaphore/acquire", "others wait", permitsOf("a:1 7", "b:1 3"), takePermits("d:1", three), "d:1", false},
		{"semaphore/acquire", "free, others wait", freed("a:1 7", "b:1 3"), takePermits("d:1", three), "d:1", false},
		{"semaphore/acquire", "a copy", permitsOf("a:1 7"), takePermits("a:1", permitCall{units: 7, keep: hour}), "a:1", false},
		{"semaphore/beat", "in use", permitsOf("a:1 7", "b:1 3", "c:1 1"), beatPermits("c:1"), "c:1", false},
		{"semaphore/beat", "free, it is the second", freed("a:1 7", "b:1 3", "c:1 1"), beatPermits("c:1"), "c:1", false},
		{"semaphore/release", "alone", permitsOf("a:1 7"), releasePermits("a:1", seven), "a:1", true},
		{"semaphore/release", "beside others", permitsOf("a:1 7", "d:1 1"), releasePermits("a:1", seven), "a:1", true},
		{"semaphore/release", "others wait", permitsOf("a:1 7", "b:1 3", "c:1 1"), releasePermits("a:1", seven), "a:1", true},
		{"semaphore/release", "a place", permitsOf("a:1 7", "b:1 3", "c:1 1"), releasePermits("b:1", permitCall{units: 3}), "b:1", true},
		{"semaphore/release", "a place, free", freed("a:1 7", "b:1 3", "c:1 1"), releasePermits("b:1", permitCall{units: 3}), "b:1", true},
		{"semaphore/force_release", "others wait", permitsOf("a:1 7", "b:1 3", "c:1 1"), forcePermits("a:1"), "a:1", true},
		{"semaphore/keep", "beside others", permitsOf("a:1 7", "d:1 1"), keepPermit("a:1", 1, permitCall{units: 7, keep: hour}), "a:1", false},
		{"semaphore/keep", "for ever", permitsOf("a:1 7"), keepPermit("a:1", 1, permitCall{units: 7}), "a:1", false},
		{"semaphore/resize", "none", permitsOf(), resize(9, 1), "", false},
		{"semaphore/resize", "up", permitsOf("a:1 7", "b:1 3"), resize(11, 1), "", false},
		{"semaphore/resize", "down", permitsOf("a:1 7", "b:1 3"), resize(2, 1), "", false},
		{"semaphore/resize", "up, kept for an hour", permitsOf("a:1 7", "b:1 3"), resizeFor(hour, 11), "", false},
		{"semaphore/resize", "none, kept for an hour", permitsOf(), resizeFor(hour, 11), "", false},
	}...)
}

// A command that Redis refuses has done nothing, whichever command, category or pair of commands
// its script may not run; the fence never goes back; and what was freed is never an error.
func TestNoScriptIsHalfDone(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	admin := dial(t, s.addr, 3, nil)
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "denied", "on", ">p", "+@all", "allkeys", "allchannels").Err())
	rdb := dial(t, s.addr, 3, func(o *redis.Options) { o.Username, o.Password = "denied", "p" })
	refused := map[string]bool{}
	more := []string{
		"@keyspace", "@read", "@write", "@sortedset", "@hash", "@string", "@fast", "@slow", "@dangerous",
		"DEL -ZREM", "DEL -HDEL", "DEL -HSET", "HDEL -ZREM", "DEL -HDEL -ZREM",
	}
	for _, d := range denials() {
		for _, command := range slices.Concat(lua.AllowedCommands, more) {
			if command == "SPUBLISH" && s.version < 700 || strings.HasPrefix(command, "DEL -HDEL") && !d.frees {
				continue // a grant that is refused is taken back with either
			}
			what := fmt.Sprintf("%s (%s) without %s", d.script, d.name, command)
			prepare(t, admin, "FLUSHALL")
			d.given(t, admin)
			before := standingOf(t, admin)
			deny := []any{"ACL", "SETUSER", "denied"}
			for _, rule := range strings.Fields("-" + command + " +evalsha +eval") {
				deny = append(deny, rule)
			}
			require.NoError(t, admin.Do(t.Context(), deny...).Err())
			_, err := d.call(t.Context(), rdb)
			require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "denied", "+@all").Err())
			after := standingOf(t, admin)
			if after.fence < before.fence {
				t.Errorf("%s: the fence was %d and is %d", what, before.fence, after.fence)
			}
			if err == nil {
				if d.frees && before.ids[d.id] != "alive queued" && after.ids[d.id] != "" {
					t.Errorf("%s: %s was released, and is %q", what, d.id, after.ids[d.id])
				}
				continue
			}
			requireDenied(t, err, what)
			refused[d.script] = true
			if changed := halfDone(d.id, before, after); changed != "" {
				t.Errorf("%s: refused, and %s", what, changed)
			}
		}
	}
	require.Len(t, refused, 16, "scripts that write, but for those that report each refusal")
}
