package lua_test

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lua"
)

// migrating is a cluster of two nodes, between which the slot of all names migrates.
type migrating struct {
	t              *testing.T
	source, target *redis.Client
	ids            [2]string // of source and target
	port           string    // of each for MIGRATE
	backPort       string
	keys           []string // of the first command of a call
	commands       int
}

func startMigrating(t *testing.T) *migrating {
	t.Helper()
	c := redistest.StartCluster(t, 2, 0)
	m := &migrating{t: t}
	var nodes [2]*redis.Client
	var ports [2]string
	for i, n := range c.Nodes {
		nodes[i] = dial(t, n.Addr(), 3, oneTry)
		_, ports[i], _ = strings.Cut(n.Addr(), ":")
		m.ids[i] = nodes[i].Do(t.Context(), "CLUSTER", "MYID").Val().(string)
	}
	m.source, m.target, m.port, m.backPort = nodes[0], nodes[1], ports[1], ports[0]
	for _, slot := range migratingSlots { // the second node has half of all
		if m.source.Exists(t.Context(), "{"+slot+"}").Err() != nil {
			m.setSlot(m.source, slot, "IMPORTING", m.ids[1])
			m.setSlot(m.source, slot, "NODE", m.ids[0])
			m.setSlot(m.target, slot, "NODE", m.ids[0])
		}
	}
	return m
}

var migratingSlots = []string{"orders:42", "render"}

func (m *migrating) setSlot(node *redis.Client, slot string, words ...any) {
	m.t.Helper()
	require.NoError(m.t, node.Do(m.t.Context(), append([]any{"CLUSTER", "SETSLOT", key.Slot(slot)}, words...)...).Err())
}

// begin lets the migration begin, and moves some keys.
func (m *migrating) begin(moved []string) {
	m.t.Helper()
	for _, slot := range migratingSlots {
		m.setSlot(m.target, slot, "IMPORTING", m.ids[0])
		m.setSlot(m.source, slot, "MIGRATING", m.ids[1])
	}
	for _, k := range moved {
		m.move(m.source, m.port, k)
	}
}

func (m *migrating) move(from *redis.Client, port, k string) {
	m.t.Helper()
	require.Equal(m.t, "OK", from.Do(m.t.Context(), "MIGRATE", "127.0.0.1", port, k, 0, 10_000).Val(), "%s is on one node", k)
}

// end brings all keys back to the source, where the test looks at them.
func (m *migrating) end() {
	m.t.Helper()
	for _, slot := range migratingSlots {
		m.setSlot(m.source, slot, "STABLE")
	}
	moved, err := m.target.Keys(m.t.Context(), "*").Result()
	require.NoError(m.t, err)
	for _, k := range moved {
		m.move(m.target, m.backPort, k)
	}
	for _, slot := range migratingSlots {
		m.setSlot(m.target, slot, "STABLE")
	}
}

// Process sends a command as a client of a cluster does.
func (m *migrating) Process(ctx context.Context, cmd redis.Cmder) error {
	m.commands++
	for _, k := range cmd.Args()[3 : 3+redistest.KeyCount(cmd.Args())] {
		if m.commands == 1 {
			m.keys = append(m.keys, fmt.Sprint(k))
		}
	}
	err := m.source.Process(ctx, cmd)
	if !redis.HasErrorPrefix(err, "ASK ") {
		return err
	}
	cmd.SetErr(nil)
	pipe := m.target.Pipeline()
	pipe.Do(ctx, "ASKING")
	_ = pipe.Process(ctx, cmd)
	_, err = pipe.Exec(ctx)
	return err
}

// dump is everything that is stored, as text. Times are in hours.
func dump(t *testing.T, rdb *redis.Client) (all []string) {
	t.Helper()
	ctx, now := t.Context(), serverTime(t, rdb)
	number := func(score float64) string {
		const span = 1 << 42
		at, level := int64(score), 0
		if score > 1e15 && score < seeded {
			return "clock"
		}
		if at > span && score < 1e15 {
			at, level = at%span, int(at/span)
		}
		if at < 0 {
			return "note"
		}
		if at < 1e12 || at > span {
			return fmt.Sprint(at)
		}
		return fmt.Sprintf("%d:%dh", level, (at-now.UnixMilli()+hourMS/2)/hourMS)
	}
	keys, err := rdb.Keys(ctx, "*").Result()
	require.NoError(t, err)
	for _, k := range keys {
		var content []string
		switch typ := rdb.Type(ctx, k).Val(); typ {
		case "hash":
			for field, value := range rdb.HGetAll(ctx, k).Val() {
				if strings.HasPrefix(k, "redlatch:holders") {
					_, value, _ = strings.Cut(value, " ") // without the time
				}
				content = append(content, field+"="+value)
			}
		case "string":
			fence, err := rdb.Get(ctx, k).Float64()
			require.NoError(t, err)
			content = append(content, number(fence))
		case "zset":
			for _, z := range rdb.ZRangeWithScores(ctx, k, 0, -1).Val() {
				content = append(content, fmt.Sprint(z.Member, "=", number(z.Score)))
			}
		default:
			content = append(content, typ)
		}
		slices.Sort(content)
		life := hours(rdb.PTTL(ctx, k).Val().Round(hour))
		if strings.Contains(k, "permits") || strings.Contains(k, "holders") {
			life = map[bool]string{true: "ever", false: "a time"}[life == hours(-1)] // how long depends on a millisecond
		}
		all = append(all, fmt.Sprintf("%s for %s: %s", k, life, strings.Join(content, ", ")))
	}
	slices.Sort(all)
	return all
}

// migrations are the commands of denials, those that only read or extend, and some that remove the
// last waiter of a queue, or the last permit of a semaphore.
func migrations() []denial {
	all := slices.DeleteFunc(denials(), func(d denial) bool {
		return strings.HasSuffix(d.name, "fence for ever") || strings.HasSuffix(d.name, "no fence")
	})
	state := func(commands ...string) func(*testing.T, *redis.Client) {
		return func(t *testing.T, admin *redis.Client) { t.Helper(); prepare(t, admin, commands...) }
	}
	queuedNow := func(who string) []string {
		return []string{"ZADD @Q 5 " + who, "ZADD @A +1h " + who + " -1h grace", "PEXPIRE @Q 7200000", "PEXPIRE @A 7200000"}
	}
	alone := func(who string) func(*testing.T, *redis.Client) { return state(with(heldFair, queuedNow(who))...) }
	expired := state(with(heldFair, []string{"ZADD @Q 5 b:1/w", "ZADD @A -1h b:1/w +1h c:1/w", "PEXPIRE @Q 7200000", "PEXPIRE @A 7200000"})...)
	undescribed := func(t *testing.T, admin *redis.Client) {
		t.Helper()
		prepare(t, admin, heldFair...)
		_, err := join("b:1", aboutNothing)(t.Context(), admin)
		require.NoError(t, err)
	}
	all = append(all, []denial{
		{"mutex/acquire", "held", state(heldFair...), acquire("b:1"), "b:1", false},
		{"mutex/acquire", "held, others wait", alone("b:1/w"), acquire("d:1"), "d:1", false},
		{"mutex/release", "of another", alone("b:1/w"), release("d:1", 0), "d:1", true},
		{"mutex/force_release", "others wait", alone("b:1/w"), force("a:1"), "a:1", true},
		{"mutex/renew", "held", state(heldFair...), renew("a:1", 3*hour), "a:1", false},
		{"mutex/keep", "held", state(heldFair...), keepLock("a:1", 1, 3*hour), "a:1", true},
		{"mutex/keep_fences", "held", state(heldFair...), keepFences(5 * hour), "a:1", false},
		{"mutex/inspect", "held", state(heldFair...), inspect, "a:1", false},
		{"fair/leave", "one waits", alone("b:1/w"), leave("a:1"), "a:1", true},
		{"fair/leave", "one without a description waits", undescribed, leave("a:1"), "a:1", true},
		{"fair/leave", "it waits itself, and is the first", alone("a:1/w"), leave("a:1"), "a:1", true},
		{"fair/leave", "the only place", alone("b:1/w"), leave("b:1"), "b:1", true},
		{"fair/leave", "the only one that waits has expired", expired, leave("a:1"), "a:1", true},
		{"fair/force_release", "one waits", alone("b:1/w"), forceFair(""), "a:1", true},
		{"fair/force_release", "it waits itself, and is the first", alone("a:1/w"), forceFair("a:1"), "a:1", true},
		{"fair/force_release", "another", alone("b:1/w"), forceFair("d:1"), "d:1", true},
		{"fair/join", "the only one that waits has expired: may wait", expired, join("d:1"), "d:1", false},
		{"fair/join", "the only one that waits has expired, try", expired, join("d:1", tryOnly), "d:1", false},
		{"queue/remove", "the only one", alone("b:1/w"), removeWaiter("b:1"), "b:1", true},
		{"fair/beat", "the only one", alone("b:1/w"), beat("b:1"), "b:1", false},
		{"queue/find", "the only one", alone("b:1/w"), find("b:1", "", 1), "b:1", false},
		{"queue/list", "the only one", alone("b:1/w"), queue(0, 1), "b:1", false},
	}...)
	three := permitCall{units: 3, keep: hour, about: "me"}
	permitsOf := func(given ...permitCall) func(*testing.T, *redis.Client, ...string) {
		return func(t *testing.T, admin *redis.Client, commands ...string) {
			t.Helper()
			for i, c := range given {
				_, err := take(t.Context(), admin, fmt.Sprintf("%c:1", 'a'+i), c)
				require.NoError(t, err)
			}
			prepare(t, admin, commands...)
		}
	}
	oneWaits := permitsOf(permitCall{units: 7, keep: hour}, three)
	used := func(t *testing.T, admin *redis.Client) { t.Helper(); oneWaits(t, admin) }
	free := func(t *testing.T, admin *redis.Client) {
		t.Helper()
		oneWaits(t, admin, "ZREM "+permitNames.Permits+" a:1#1 a:1#2 a:1#4")
	}
	oneUnit := func(t *testing.T, admin *redis.Client) {
		t.Helper()
		permitsOf(permitCall{units: 1, limit: 1}, permitCall{units: 1, limit: 1, about: "me"})(t, admin)
	}
	return append(all, []denial{
		{"semaphore/acquire", "free, it is the only one that waits", free, takePermits("b:1", three), "b:1", false},
		{"semaphore/beat", "free, it is the only one that waits", free, beatPermits("b:1"), "b:1", false},
		{"semaphore/release", "one waits", used, releasePermits("a:1", permitCall{units: 7}), "a:1", true},
		{"semaphore/release", "one waits for one unit", oneUnit, releasePermits("a:1", permitCall{units: 1}), "a:1", true},
		{"semaphore/release", "the only place", used, releasePermits("b:1", three), "b:1", true},
		{"semaphore/force_release", "one waits", used, forcePermits("a:1"), "a:1", true},
		{"semaphore/force_release", "one that waits, free", free, forcePermits("b:1"), "c:1", false},
		{"semaphore/resize", "one waits", used, resize(11, 1), "", false},
		{"semaphore/renew", "used", used, permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			return lua.RenewPermits(ctx, rdb, 0, []lua.PermitRenewal{
				{Permits: permitNames.Permits, Holders: permitNames.Holders, Acquisition: "a:1", Units: 7, Lease: 3 * hour},
			})
		}), "a:1", false},
		{"semaphore/keep", "used", used, keepPermit("a:1", 1, permitCall{units: 7}), "a:1", true},
		{"semaphore/inspect", "used", used, permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			r, err := lua.InspectPermits(ctx, rdb, semaphoreKeys, 10)
			return []int{r.InUse, r.Waiting}, err
		}), "a:1", false},
	}...)
}

// While a slot migrates, a script runs where all of its keys are, and nowhere if they are on both
// nodes or if one is not there. It does what it does at other times, also if it removes a key on
// the node that gives the slot away: that node then answers no command for the key. If it does not
// run, it has changed nothing. A release never waits: it needs the one key that says who has the
// lock or the units.
func TestEveryScriptIsRightWhileItsSlotMigrates(t *testing.T) {
	t.Parallel()
	m := startMigrating(t)
	prepared := func(d denial) {
		prepare(t, m.source, "FLUSHALL")
		d.given(t, m.source)
	}
	ran, waits, freed := map[string]int{}, map[string]int{}, map[string]int{}
	for _, d := range migrations() {
		prepared(d)
		before := standingOf(t, m.source)
		keys, err := m.source.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		wantReply, err := d.call(t.Context(), m)
		require.NoError(t, err, "%s (%s)", d.script, d.name)
		want := dump(t, m.source)
		for subset := range 1 << len(keys) {
			var moved []string
			for i, k := range keys {
				if subset&(1<<i) != 0 {
					moved = append(moved, k)
				}
			}
			what := fmt.Sprintf("%s (%s) with %v on the other node", d.script, d.name, moved)
			prepared(d)
			m.begin(moved)
			m.keys, m.commands = nil, 0
			reply, err := d.call(t.Context(), m)
			m.end()
			together := !slices.ContainsFunc(m.keys, func(k string) bool {
				return !slices.Contains(keys, k) || slices.Contains(moved, k) != slices.Contains(moved, m.keys[0])
			})
			had := strings.Contains(before.ids[d.id], "holds") || strings.Contains(before.ids[d.id], "units")
			if err == nil && !together && m.commands > 1 {
				after := standingOf(t, m.source)
				is := after.ids[d.id]
				switch {
				case had && strings.HasPrefix(reply, "freed") && !strings.Contains(is, "holds") && !strings.Contains(is, "units"):
				case (!had || !d.frees) && reply == wantReply && d.script == "mutex/release":
				default:
					t.Errorf("%s: %s was %q and is %q, and it answers %q", what, d.id, before.ids[d.id], is, reply)
				}
				after.ids[d.id] = before.ids[d.id]
				if changed := halfDone(d.id, before, after); changed != "" || after.fence != before.fence {
					t.Errorf("%s: it freed the lock alone, and %s", what, changed)
				}
				freed[d.script]++
				continue
			}
			if err == nil {
				if got := dump(t, m.source); reply != wantReply || !slices.Equal(want, got) {
					t.Errorf("%s: it answers %q and leaves\n%s\nnot %q and\n%s", what, reply, strings.Join(got, "\n"), wantReply, strings.Join(want, "\n"))
				}
				ran[d.script]++
				continue
			}
			waits[d.script]++
			if had && (strings.HasSuffix(d.script, "/release") || d.script == "fair/leave") {
				t.Errorf("%s: it is not released: %v", what, err)
			}
			if together && !strings.HasSuffix(d.name, "may wait") {
				t.Errorf("%s: the node has all keys, and it answers %v", what, err)
			}
			class, code := lua.Classify(err)
			require.Equal(t, lua.NotRun, class, "%s: %v", what, err)
			require.Equal(t, "TRYAGAIN", code, "%s: %v", what, err)
			after := standingOf(t, m.source)
			changed := halfDone(d.id, before, after)
			if strings.HasSuffix(d.name, "may wait") && before.ids[d.id] == after.ids[d.id] {
				continue // it has dropped expired waiters
			}
			if changed != "" || after.fence < before.fence {
				t.Errorf("%s: it did not run, and %s", what, changed)
			}
		}
	}
	files, err := filepath.Glob("[mfsq]*/*.lua")
	require.NoError(t, err)
	require.Len(t, ran, len(files), "%v", ran)
	require.NotContains(t, waits, "mutex/renew", "it has one key")
	require.NotContains(t, waits, "mutex/keep", "it has one key")
	require.NotContains(t, waits, "mutex/keep_fences", "it has one key")
	require.NotContains(t, waits, "mutex/release", "one key does")
	require.Len(t, waits, len(files)-4, "%v", waits)
	require.Len(t, freed, 3, "releases of holders: %v", freed)
}

// split answers as a cluster of which no node has all keys of a command.
type split struct {
	lua.Redis
	keys []int // how many each command had
	lost error // in place of the answer to a command with one key
}

func (s *split) Process(ctx context.Context, cmd redis.Cmder) error {
	n := redistest.KeyCount(cmd.Args())
	s.keys = append(s.keys, n)
	if n > 1 {
		cmd.SetErr(redisError("TRYAGAIN Multiple keys request during rehashing of slot"))
		return cmd.Err()
	}
	err := s.Redis.Process(ctx, cmd)
	if s.lost != nil {
		cmd.SetErr(s.lost)
		return s.lost
	}
	return err
}

// A release needs one key only. The waiters do the rest.
func TestAReleaseNeedsOneKey(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		waiting := func() {
			prepare(t, b.rdb, "FLUSHALL")
			prepare(t, b.rdb, with(heldFair, bcQueued)...)
			require.Equal(t, lua.Granted, mustTake(t, b, "a:1", permitCall{units: 7}))
			require.Equal(t, lua.Queued, mustTake(t, b, "b:1", permitCall{units: 7}))
		}
		for _, text := range lua.ScriptSources() {
			require.NoError(t, b.rdb.ScriptLoad(t.Context(), text).Err())
		}
		seven := permitCall{units: 7}
		for name, c := range map[string]struct {
			call        func(context.Context, lua.Redis) (string, error)
			reply       string
			id, becomes string
			commands    int
		}{
			"a plain mutex":        {release("a:1", 0), "freed, received by 0", "a:1", "units:7", 2},
			"an inner hold":        {release("a:1", 2), "kept", "a:1", "holds:2 units:7", 2},
			"another's":            {release("c:1", 0), "gone", "c:1", "alive queued", 2},
			"a fair mutex":         {leave("a:1"), "freed, received by 0", "a:1", "units:7", 2},
			"a place":              {leave("b:1"), "TRYAGAIN", "b:1", "alive alive queued queued", 2},
			"units":                {releasePermits("a:1", seven), "freed", "a:1", "holds:1", 2},
			"one unit of seven":    {releasePermits("a:1", permitCall{units: 1}), "freed", "a:1", "holds:1 units:6", 2},
			"a place for units":    {releasePermits("b:1", seven), "TRYAGAIN", "b:1", "alive alive queued queued", 2},
			"the lock of somebody": {forceFair("a:1"), "TRYAGAIN", "a:1", "holds:1 units:7", 1},
		} {
			waiting()
			rdb := &split{Redis: b.rdb}
			got, err := c.call(t.Context(), rdb)
			if err != nil {
				_, got = lua.Classify(err)
			}
			require.Equal(t, c.reply, got, name)
			require.Len(t, rdb.keys, c.commands, name)
			after := standingOf(t, b.rdb)
			require.Equal(t, c.becomes, after.ids[c.id], name)
			require.EqualValues(t, 5000000000000000, after.fence, name)
		}
		for name, call := range map[string]func(context.Context, lua.Redis) (string, error){
			"a plain mutex": release("a:1", 0), "a fair mutex": leave("a:1"), "units": releasePermits("a:1", seven),
		} {
			waiting()
			_, err := call(t.Context(), &split{Redis: b.rdb, lost: io.EOF})
			require.ErrorIs(t, err, io.EOF, "%s: it may have been freed", name)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			rdb := &split{Redis: b.rdb}
			_, err = call(ended, rdb)
			require.Error(t, err)
			require.Len(t, rdb.keys, 1, "%s: the caller has left", name)
		}
	})
}
