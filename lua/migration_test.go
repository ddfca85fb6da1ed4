package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lua"
)

// migrating is a cluster of two masters in which slots move from one to the other, and get stuck.
type migrating struct {
	t        *testing.T
	cluster  *redistest.Cluster
	rdb      *redis.ClusterClient
	from, to *redistest.Server
	slots    []int
	open     []*redistest.Migration
}

// newMigrating has the slots of the lock and of the semaphore of these tests on one node.
func newMigrating(t *testing.T) *migrating {
	c := redistest.StartCluster(t, 2, 0)
	m := &migrating{t: t, cluster: c, from: c.Nodes[0], to: c.Nodes[1]}
	for _, name := range []string{names.Lock, permitNames.Permits} {
		slot := key.Slot(name)
		m.slots = append(m.slots, slot)
		if slot >= 1<<13 {
			c.Migrate(t, slot, m.to, m.from).Finish(t)
		}
	}
	m.rdb = c.Client(t)
	return m
}

// begin begins to move the slots, and moves some keys.
func (m *migrating) begin(keys []string) {
	m.t.Helper()
	for _, slot := range m.slots {
		one := m.cluster.Migrate(m.t, slot, m.from, m.to)
		one.Move(m.t, slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return key.Slot(k) != slot })...)
		m.open = append(m.open, one)
	}
}

// clear ends the migration, with all keys gone.
func (m *migrating) clear() {
	m.t.Helper()
	for _, k := range []string{names.Lock, names.Fence, names.Queue, names.Alive, permitNames.Permits, permitNames.Holders, permitNames.Queue, permitNames.Alive} {
		require.NoError(m.t, m.rdb.Del(m.t.Context(), k).Err())
	}
	for _, one := range m.open {
		one.Cancel(m.t)
	}
	m.open = nil
}

// subsets returns all parts of a set.
func subsets(all []string) (parts [][]string) {
	for bits := range 1 << len(all) {
		var part []string
		for i, k := range all {
			if bits&(1<<i) != 0 {
				part = append(part, k)
			}
		}
		parts = append(parts, part)
	}
	return parts
}

// split is a command on a state that a slot has when it begins to migrate.
type split struct {
	denial
	// answered reports whether the command must be answered, when these keys have moved. nil: never.
	answered func(moved []string) bool
}

// oneNode reports whether all or none of the keys have moved.
func oneNode(keys ...string) func(moved []string) bool {
	return func(moved []string) bool {
		n := 0
		for _, k := range keys {
			if slices.Contains(moved, k) {
				n++
			}
		}
		return n == 0 || n == len(keys)
	}
}

func splits() (all []split) {
	always := func([]string) bool { return true }
	for _, d := range denials() {
		if strings.Contains(d.name, "fence behind") || strings.Contains(d.name, "fence for ever") {
			continue // the fence makes no difference here
		}
		s := split{denial: d}
		if d.frees && !strings.Contains(d.name, "a place") && !strings.HasSuffix(d.script, "force_release") {
			s.answered = always
		}
		all = append(all, s)
	}
	state := func(commands ...string) func(*testing.T, *redis.Client) {
		return func(t *testing.T, admin *redis.Client) { t.Helper(); prepare(t, admin, commands...) }
	}
	permitsOf := func(given ...string) func(*testing.T, *redis.Client) {
		return func(t *testing.T, admin *redis.Client) {
			t.Helper()
			for i, who := range given {
				_, err := take(t.Context(), admin, who, permitCall{units: 7 - 4*min(i, 1), keep: hour})
				require.NoError(t, err)
			}
		}
	}
	lockAndFence := oneNode(names.Lock, names.Fence)
	one := []string{"ZADD @Q 5 b:1/w", "ZADD @A +1h b:1/w", "PEXPIRE @Q 7200000", "PEXPIRE @A 7200000"}
	renewLock := func(ctx context.Context, rdb lua.Redis) (string, error) {
		r, err := lua.Renew(ctx, rdb, []lua.Renewal{{LockKey: names.Lock, Acquisition: "a:1", Lease: hour}})
		return fmt.Sprint(r), err
	}
	renewPermit := permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
		return lua.RenewPermits(ctx, rdb, hour, []lua.PermitRenewal{{Permits: permitNames.Permits, Holders: permitNames.Holders, Acquisition: "a:1", Units: 7, Lease: hour}})
	})
	claimPermit := permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
		r, err := lua.PermitHeartbeats(ctx, rdb, 0, "c", true, []lua.PermitHeartbeat{{Keys: semaphoreKeys, Waiter: permitWaiter("a:1", permitCall{units: 7}), Limit: 8}})
		return len(r) == 1 && r[0].Status == lua.Granted, err
	})
	return append(all, []split{
		{denial{"fair/leave", "one waits", state(with(heldFair, one)...), leave("a:1"), "a:1", true}, always},
		{denial{"fair/force_release", "one waits", state(with(heldFair, one)...), forceFair("a:1"), "a:1", true}, nil},
		{denial{"fair/beat", "one waits", state(with(heldFair, one)...), beat("b:1"), "b:1", false}, nil},
		{denial{"fair/beat", "it was the last and has the lock", state(heldFair...), beat("a:1"), "a:1", false}, lockAndFence},
		{denial{"mutex/acquire", "a re-entry", state(heldFair...), acquire("a:1", holds(2)), "", false}, lockAndFence},
		{denial{"mutex/acquire", "held, and one waits", state(with(heldFair, one)...), acquire("d:1"), "d:1", false}, lockAndFence},
		{denial{"mutex/release", "an inner hold, and one waits", state(with(heldFair, one)...), release("a:1", 1), "", false}, always},
		{denial{"mutex/renew", "held", state(heldFair...), renewLock, "a:1", false}, always},
		{denial{"semaphore/release", "one waits", permitsOf("a:1", "b:1"), releasePermits("a:1", permitCall{units: 7}), "a:1", true}, always},
		{denial{"semaphore/force_release", "one waits", permitsOf("a:1", "b:1"), forcePermits("a:1"), "a:1", true}, nil},
		{denial{"semaphore/beat", "it was the last and has units", permitsOf("a:1"), claimPermit, "a:1", false}, always},
		{denial{"semaphore/renew", "held", permitsOf("a:1"), renewPermit, "a:1", false}, always},
	}...)
}

// A slot migrates, and any part of the keys has moved. A command that is answered with an error has
// changed nothing, and the error says that it may be sent again. What somebody has can be renewed and
// released. If all keys are on one node, what is released goes to the next waiter.
func TestNoScriptIsHalfDoneInASlotThatMigrates(t *testing.T) {
	t.Parallel()
	m := newMigrating(t)
	admin, answers := m.from.Client(t), map[bool]int{}
	for _, c := range splits() {
		c.given(t, admin)
		want, err := c.call(t.Context(), admin)
		require.NoError(t, err)
		m.clear()
		c.given(t, admin)
		keys := admin.Keys(t.Context(), "*").Val()
		m.clear()
		slices.Sort(keys)
		for _, moved := range subsets(keys) {
			what := fmt.Sprintf("%s (%s) with %q moved", c.script, c.name, moved)
			c.given(t, admin)
			before := standingOf(t, m.rdb)
			m.begin(moved)
			got, err := c.call(t.Context(), m.rdb)
			after := standingOf(t, m.rdb)
			m.clear()
			answers[err == nil]++
			if after.fence < before.fence {
				t.Errorf("%s: the fence was %d and is %d", what, before.fence, after.fence)
			}
			if err != nil {
				m.checkRefused(what, c, moved, before, after, err)
				continue
			}
			if word(got) != word(want) {
				t.Errorf("%s: %q, and without the migration %q", what, got, want)
			}
			m.checkDone(what, c, before, after, len(keys) == 4 && (len(moved) == 0 || len(moved) == len(keys)))
		}
	}
	require.Greater(t, answers[true], 100)
	require.Greater(t, answers[false], 100)
}

func word(text string) string {
	first, _, _ := strings.Cut(strings.NewReplacer(",", " ", "[", "", "]", "").Replace(text), " ")
	return first
}

func (m *migrating) checkRefused(what string, c split, moved []string, before, after standing, err error) {
	m.t.Helper()
	if fault, _ := lua.Classify(err); fault != lua.NotRun {
		m.t.Errorf("%s: %v is class %v", what, err, fault)
	}
	if changed := halfDone(c.id, before, after); changed != "" {
		m.t.Errorf("%s: refused with %v, and %s", what, err, changed)
	}
	if c.answered != nil && c.answered(moved) {
		m.t.Errorf("%s: not answered: %v", what, err)
	}
}

// checkDone checks what a command did that was answered.
func (m *migrating) checkDone(what string, c split, before, after standing, together bool) {
	m.t.Helper()
	if !c.frees || before.ids[c.id] == "alive queued" {
		return
	}
	if after.ids[c.id] != "" {
		m.t.Errorf("%s: %s was released, and is %q", what, c.id, after.ids[c.id])
	}
	waited, served := false, false
	for id, state := range before.ids {
		if state == "alive queued" {
			waited = true
			served = served || strings.HasPrefix(after.ids[id], "holds") || strings.HasPrefix(after.ids[id], "units")
		}
	}
	if waited && !served && together && !strings.HasPrefix(c.script, "mutex/") {
		m.t.Errorf("%s: nobody was served", what)
	}
}
