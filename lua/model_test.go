package lua_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/lua"
)

// TestScriptsBehaveLikeTheModel runs random commands of several clients, copies
// of earlier commands among them, and the passing of time, on a few locks. A
// plain Go model says what each must answer and what must be stored after it;
// both are compared after every step, the whole keyspace included. In a tenth
// of the runs every command is sent twice and the second must change nothing.
//
// Time is an interval: read before and after each command. The embedded server
// has a clock that stands still unless the test moves it, so there the interval
// is a point, leases expire, and grants come past their end. On a real server
// leases are hours long, and expiry is what an operator can do.
func TestScriptsBehaveLikeTheModel(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		var bite bites
		rapid.Check(t, func(t *rapid.T) { newMachine(t, b, &bite).run(t) })
		bite.requireAll(t, b)
	})
}

// coverage counts what happened to all backends together, and knows what has to happen.
type coverage struct {
	wanted []string
	mu     sync.Mutex
	all    bites
}

// newCoverage fails the test at its end if anything that is wanted never happened.
func newCoverage(t *testing.T, wanted ...string) *coverage {
	c := &coverage{wanted: wanted, all: bites{}}
	t.Cleanup(func() {
		for _, what := range c.missing() {
			if !t.Failed() && !explicitChecks() {
				t.Errorf("never happened: %s", what)
			}
		}
	})
	return c
}

func (c *coverage) add(more bites) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for what, n := range more {
		c.all[what] += n
	}
}

func (c *coverage) missing() (missing []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, what := range c.wanted {
		if c.all[what] == 0 {
			missing = append(missing, what)
		}
	}
	return missing
}

// rounds is how often the embedded server may run a random test until everything has happened. One
// round has nearly all of it.
const rounds = 10

// check runs a random test of the larger scripts, as often as rapid says. The embedded server,
// which has the clock that the test sets, repeats that until everything has happened that c wants.
func (b *backend) check(t *testing.T, c *coverage, run func(t *rapid.T, bite *bites)) {
	t.Helper()
	for range rounds {
		var bite bites
		rapid.Check(t, func(t *rapid.T) { run(t, &bite) })
		c.add(bite)
		if b.mini == nil || explicitChecks() || len(c.missing()) == 0 {
			return
		}
	}
}

// explicitChecks says that the number of runs was chosen by hand, maybe few.
func explicitChecks() bool {
	given := testing.Short() // rapid makes a fifth of its checks
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" || f.Name == "rapid.failfile" })
	return given
}

// bites counts what happened, so that a model that never got there is noticed.
type bites map[string]int

func (c *bites) hit(what string) {
	if *c == nil {
		*c = bites{}
	}
	(*c)[what]++
}

func (c *bites) requireAll(t *testing.T, b *backend) {
	t.Helper()
	if explicitChecks() {
		return
	}
	want := []string{
		"acquire granted", "acquire busy", "acquire gone", "acquire void", "acquire re-entered",
		"release freed", "release kept", "release gone", "transfer granted", "transfer gone", "transfer void",
		"renew extended", "renew held", "renew gone", "force freed", "force busy", "force nobody",
		"copy", "run twice", "fence key lost", "a copy granted a lock again",
	}
	if b.mini != nil {
		want = append(want, "a lease expired")
	}
	for _, what := range want {
		require.Positive(t, (*c)[what], "never happened: %s", what)
	}
}

// span is when a key expires, in microseconds of the clock that leases run by.
type span struct {
	lo, hi  int64
	forever bool
}

type storedLock struct {
	holder, about string
	holds         int
	end           span
}

type storedFence struct {
	value int64
	end   span
}

type machine struct {
	b       *backend
	bite    *bites
	locks   []key.Mutex
	held    map[int]*storedLock
	fences  map[int]*storedFence
	given   map[int]int64 // the highest fence ever given out
	lifted  int64         // leases: how far they were moved, miniredis only
	clock   time.Time     // miniredis only
	stepped bool          // the clock was set back
	twice   bool
	past    []op
	slack   int64 // how far PTTL may be off, in microseconds

	// Of scripts that stand on these: what sends them, and the keys they leave.
	verbs    map[string]func(t *rapid.T, o op)
	also     []string
	hasQueue func(lock int) bool
}

type op struct {
	verb    string
	lock    int
	who, to string
	lease   time.Duration
	holds   int
	end     lua.Time
	keep    time.Duration
	about   string
	batch   []op
	ticket  int64
	try     bool
	take    bool // of a beat
	untaken bool // of one in its batch
}

func newMachine(t *rapid.T, b *backend, bite *bites) *machine {
	require.NoError(t, b.rdb.FlushAll(context.Background()).Err())
	m := &machine{
		b: b, bite: bite,
		locks:  []key.Mutex{key.ForMutex("{m}:1"), key.ForMutex("{m}:2")},
		held:   map[int]*storedLock{},
		fences: map[int]*storedFence{},
		given:  map[int]int64{},

		hasQueue: func(int) bool { return false },
		twice:    rapid.IntRange(0, 9).Draw(t, "twice") == 0,
		slack:    20_000,
	}
	if b.mini != nil {
		m.slack = 0
		m.clock = time.UnixMicro(1_800_000_000_000_000)
		b.mini.SetTime(m.clock)
	}
	return m
}

func (m *machine) run(t *rapid.T) {
	if m.twice {
		m.bite.hit("run twice")
	}
	t.Repeat(m.actions())
}

func (m *machine) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"acquire":  func(t *rapid.T) { m.do(t, m.drawAcquire(t, 1)) },
		"reenter":  func(t *rapid.T) { m.do(t, m.drawAcquire(t, rapid.IntRange(1, 3).Draw(t, "holds"))) },
		"release":  func(t *rapid.T) { m.do(t, m.drawRelease(t)) },
		"transfer": func(t *rapid.T) { m.do(t, m.drawTransfer(t)) },
		"renew":    func(t *rapid.T) { m.do(t, m.drawRenew(t)) },
		"force":    func(t *rapid.T) { m.do(t, m.drawForce(t)) },
		"inspect":  func(t *rapid.T) { m.do(t, op{verb: "inspect", lock: m.drawLock(t)}) },
		"copy":     m.copy,
		"remove":   m.remove,
		"time":     m.pass,
		"":         m.compare,
	}
}

// Draws prefer what is true, so that the interesting branches are reached.

func (m *machine) drawLock(t *rapid.T) int { return rapid.IntRange(0, len(m.locks)-1).Draw(t, "lock") }

func (m *machine) drawWho(t *rapid.T, lock int) string {
	who := rapid.SampledFrom([]string{"", "", "a:1", "a:2", "a:12", "b:1"}).Draw(t, "who")
	if l := m.held[lock]; who == "" && l != nil {
		return l.holder
	}
	if who == "" {
		return "c:1"
	}
	return who
}

func (m *machine) drawEnd(t *rapid.T) lua.Time {
	now := serverTime(t, m.b.rdb)
	ends := []lua.Time{now.Add(hour), now.Add(2 * hour), now.Add(24 * hour), now - 1}
	if m.b.mini != nil {
		ends = append(ends, now, now+1) // the clock stands still
	}
	return rapid.SampledFrom(ends).Draw(t, "end")
}

func (m *machine) drawKeep(t *rapid.T) time.Duration {
	return time.Duration(rapid.SampledFrom([]int64{0, 0, 2, 48}).Draw(t, "keep")) * hour
}

func (m *machine) drawAcquire(t *rapid.T, holds int) op {
	lock := m.drawLock(t)
	o := op{
		verb: "acquire", lock: lock, who: m.drawWho(t, lock), holds: holds,
		end: m.drawEnd(t), keep: m.drawKeep(t), about: rapid.SampledFrom([]string{"", "me", "you"}).Draw(t, "about"),
	}
	if o.lease = leaseOf(o.who); holds > 1 && rapid.Bool().Draw(t, "extends not") {
		o.lease = 0
	}
	return o
}

func (m *machine) drawRelease(t *rapid.T) op {
	lock := m.drawLock(t)
	return op{verb: "release", lock: lock, who: m.drawWho(t, lock), holds: rapid.IntRange(0, 2).Draw(t, "left"), end: m.drawEnd(t)}
}

func (m *machine) drawTransfer(t *rapid.T) op {
	lock := m.drawLock(t)
	o := op{verb: "transfer", lock: lock, who: m.drawWho(t, lock), end: m.drawEnd(t), keep: m.drawKeep(t)}
	// An acquisition is never handed to itself.
	o.to = rapid.SampledFrom([]string{"a:1", "a:2", "a:3", "b:2"}).Filter(func(s string) bool { return s != o.who }).Draw(t, "to")
	o.lease = leaseOf(o.to)
	return o
}

func (m *machine) drawRenew(t *rapid.T) op {
	o := op{verb: "renew"}
	for i := range rapid.IntRange(0, len(m.locks)).Draw(t, "from") + 1 {
		lock := i % len(m.locks)
		who := m.drawWho(t, lock)
		o.batch = append(o.batch, op{lock: lock, who: who, lease: leaseOf(who) * time.Duration(rapid.IntRange(0, 1).Draw(t, "extends"))})
	}
	return o
}

func (m *machine) drawForce(t *rapid.T) op {
	lock := m.drawLock(t)
	o := op{verb: "force", lock: lock}
	if rapid.Bool().Draw(t, "expecting") {
		o.who = m.drawWho(t, lock)
	}
	return o
}

// copy sends an earlier command once more, with its old arguments or with an
// end that has passed.
func (m *machine) copy(t *rapid.T) {
	if len(m.past) == 0 {
		t.Skip("nothing was sent yet")
	}
	o := rapid.SampledFrom(m.past).Draw(t, "copy")
	if rapid.IntRange(0, 3).Draw(t, "late") == 0 {
		o.end = 1
	}
	m.bite.hit("copy")
	if o.verb == "acquire" && o.holds == 1 && o.end > 1 && m.held[o.lock] == nil {
		m.bite.hit("a copy granted a lock again")
	}
	m.do(t, o)
}

// remove is an operator, an eviction, a FLUSHALL; on a real server it stands
// for expiry too.
func (m *machine) remove(t *rapid.T) {
	ctx, lock := context.Background(), m.drawLock(t)
	switch rapid.SampledFrom([]string{"lock", "lock", "fence", "all", "end"}).Draw(t, "what") {
	case "lock":
		require.NoError(t, m.b.rdb.Del(ctx, m.locks[lock].Lock).Err())
		delete(m.held, lock)
	case "fence":
		require.NoError(t, m.b.rdb.Del(ctx, m.locks[lock].Fence).Err())
		m.bite.hit("fence key lost")
		delete(m.fences, lock)
	case "all":
		require.NoError(t, m.b.rdb.FlushAll(ctx).Err())
		clear(m.held)
		clear(m.fences)
	case "end":
		require.NoError(t, m.b.rdb.Persist(ctx, m.locks[lock].Lock).Err())
		if l := m.held[lock]; l != nil {
			l.end = span{forever: true}
		}
	}
}

// pass moves the clock and, apart from it, the leases: Redis expires keys by
// the same clock, but it can be stepped. A step back makes every lease longer.
func (m *machine) pass(t *rapid.T) {
	if m.b.mini == nil {
		t.Skip("a real server's clock runs by itself")
	}
	d := time.Duration(rapid.SampledFrom([]int64{0, 1, 59, 60, 90, 180, 660}).Draw(t, "minutes")) * time.Minute
	leases := d
	switch rapid.IntRange(0, 5).Draw(t, "clock too") {
	case 0, 1:
		m.clock = m.clock.Add(d)
		m.b.mini.SetTime(m.clock)
	case 2:
		m.clock = m.clock.Add(-d)
		m.b.mini.SetTime(m.clock)
		m.stepped = m.stepped || d > 0
	case 3:
		leases = -d
		m.clock = m.clock.Add(-d)
		m.b.mini.SetTime(m.clock)
		m.stepped = m.stepped || d > 0
	}
	m.b.mini.FastForward(leases)
	m.lifted += leases.Microseconds()
	maps.DeleteFunc(m.held, func(_ int, l *storedLock) bool {
		gone := !l.end.forever && l.end.hi <= m.lifted
		if gone {
			m.bite.hit("a lease expired")
		}
		return gone
	})
	maps.DeleteFunc(m.fences, func(_ int, f *storedFence) bool { return !f.end.forever && f.end.hi <= m.lifted })
}

// leases reads the clock that keys expire by.
func (m *machine) leases(t *rapid.T) int64 {
	if m.b.mini != nil {
		return m.lifted
	}
	return int64(serverTime(t, m.b.rdb))
}

func (m *machine) do(t *rapid.T, o op) {
	m.past = append(m.past, o)
	m.once(t, o)
	if !m.twice {
		return
	}
	m.compare(t)
	before := m.content()
	m.once(t, o)
	require.Equal(t, before, m.content(), "the second run changed something")
}

// content is the model's state without the times.
func (m *machine) content() string {
	var s []string
	for lock := range m.locks {
		if l := m.held[lock]; l != nil {
			s = append(s, fmt.Sprintf("lock %d: %s x%d %s", lock, l.holder, l.holds, l.about))
		}
		if f := m.fences[lock]; f != nil {
			s = append(s, fmt.Sprintf("fence %d: %d", lock, f.value))
		}
	}
	return fmt.Sprint(s)
}

func (m *machine) once(t *rapid.T, o op) {
	ctx, rdb := context.Background(), m.b.rdb
	if m.b.mini != nil {
		// Two commands never come in one microsecond.
		m.clock = m.clock.Add(time.Microsecond)
		m.b.mini.SetTime(m.clock)
	}
	k := m.locks[o.lock]
	c0, l0 := serverTime(t, rdb), m.leases(t)
	during := func() span { return span{lo: l0, hi: m.leases(t)} }
	checkNow := func(now lua.Time) {
		// Newer servers give a script the time of a snapshot, which can be a little older.
		require.GreaterOrEqual(t, now, c0-lua.Time(time.Millisecond.Microseconds()))
		require.LessOrEqual(t, now, serverTime(t, rdb))
	}
	switch o.verb {
	case "acquire":
		got, err := lua.Acquire(ctx, rdb, lua.AcquireParams{
			LockKey: k.Lock, FenceKey: k.Fence, QueueKey: k.Queue, Acquisition: o.who, Lease: o.lease,
			Holds: o.holds, VoidAfter: o.end, FenceRetention: o.keep, Description: o.about,
		})
		require.NoError(t, err)
		checkNow(got.Now)
		want := m.acquire(o, got.Now, during())
		if got.Status == lua.Busy {
			require.True(t, m.held[o.lock].end.contains(got.Remaining, during(), m.slack), "remaining %v", got.Remaining)
			got.Remaining = 0
		}
		require.Equal(t, want, got)
		m.bite.hit("acquire " + statusNames[got.Status])
	case "release":
		got, err := lua.Release(ctx, rdb, lua.ReleaseParams{
			LockKey: k.Lock, QueueKey: k.Queue, Channel: k.Channel, Acquisition: o.who, HoldsLeft: o.holds, VoidAfter: o.end,
		})
		require.NoError(t, err)
		if got.Now != 0 {
			checkNow(got.Now)
		}
		require.Equal(t, m.release(o, got.Now), got)
		m.bite.hit("release " + statusNames[got.Status])
	case "transfer":
		got, err := lua.Transfer(ctx, rdb, lua.TransferParams{
			LockKey: k.Lock, FenceKey: k.Fence, From: o.who, To: o.to, Lease: o.lease, VoidAfter: o.end, FenceRetention: o.keep,
		})
		require.NoError(t, err)
		checkNow(got.Now)
		require.Equal(t, m.transfer(o, got.Now, during()), got)
		m.bite.hit("transfer " + statusNames[got.Status])
	case "renew":
		batch := make([]lua.Renewal, len(o.batch))
		for i, r := range o.batch {
			batch[i] = lua.Renewal{LockKey: m.locks[r.lock].Lock, Acquisition: r.who, Lease: r.lease}
		}
		got, err := lua.Renew(ctx, rdb, batch)
		require.NoError(t, err)
		require.Len(t, got, len(batch))
		for i, r := range o.batch {
			require.Equal(t, answerNames[m.renew(r, during())], answerNames[got[i]])
			m.bite.hit("renew " + answerNames[got[i]])
		}
	case "force":
		got, err := lua.ForceRelease(ctx, rdb, lua.ForceReleaseParams{LockKey: k.Lock, QueueKey: k.Queue, Channel: k.Channel, Expected: o.who})
		require.NoError(t, err)
		require.Equal(t, m.force(o), got)
		m.bite.hit("force " + statusNames[got.Status])
	case "inspect":
		got, err := lua.Inspect(ctx, rdb, k.Lock, k.Fence)
		require.NoError(t, err)
		checkNow(got.Now)
		want := lua.InspectReply{Now: got.Now}
		if l := m.held[o.lock]; l != nil {
			require.True(t, l.end.contains(got.Remaining, during(), m.slack), "remaining %v", got.Remaining)
			want.Holder, want.Holds, want.Description = l.holder, l.holds, l.about
		} else {
			require.Negative(t, got.Remaining)
		}
		got.Remaining = 0
		if f := m.fences[o.lock]; f != nil {
			want.Fence = f.value
		}
		require.Equal(t, want, got)
	default:
		m.verbs[o.verb](t, o)
	}
}

// The model. Each function is one script in Go.

func (m *machine) acquire(o op, now lua.Time, during span) lua.AcquireReply {
	l := m.held[o.lock]
	switch {
	case now > o.end:
		return lua.AcquireReply{Status: lua.Void, Now: now}
	case l != nil && l.holder == o.who:
		l.holds = o.holds
		l.end = l.end.renewed(during, o.lease)
		if m.fences[o.lock] == nil {
			m.grant(o.living(o.lease), now, during)
		}
		m.bite.hit("acquire re-entered")
		return lua.AcquireReply{Status: lua.Granted, Fence: m.fences[o.lock].value, Now: now}
	case o.holds > 1:
		return lua.AcquireReply{Status: lua.Gone, Now: now}
	case l != nil:
		return lua.AcquireReply{Status: lua.Busy, Holder: l.holder, Description: l.about, Now: now}
	case m.hasQueue(o.lock):
		return lua.AcquireReply{Status: lua.QueueNotEmpty, Remaining: -time.Millisecond, Now: now}
	}
	m.held[o.lock] = &storedLock{holder: o.who, about: o.about, holds: 1, end: during.plus(o.lease)}
	return lua.AcquireReply{Status: lua.Granted, Fence: m.grant(o, now, during), Now: now}
}

// living is the operation with the life of a fence of a lock with this lease.
func (o op) living(lease time.Duration) op {
	if o.keep > 0 {
		o.keep = max(o.keep, 2*lease)
	}
	return o
}

// grant makes a new fence: above the stored one and not below the clock; and so
// above all that were ever given out, unless the stored one was lost and the
// clock was set back.
func (m *machine) grant(o op, now lua.Time, during span) int64 {
	fence := int64(now)
	f := m.fences[o.lock]
	if f != nil {
		fence = max(fence, f.value+1)
	}
	if fence <= m.given[o.lock] && (f != nil || !m.stepped) {
		panic(fmt.Sprintf("fence %d after %d", fence, m.given[o.lock]))
	}
	m.given[o.lock] = fence
	m.fences[o.lock] = &storedFence{value: fence, end: f.kept(during, o.keep)}
	return fence
}

// kept is the end of a fence after a grant: for ever, or as it was if that is far enough, or
// later than asked for, by an hour at most. At the border it may be either.
func (f *storedFence) kept(during span, keep time.Duration) span {
	if keep == 0 || f != nil && f.end.forever {
		return span{forever: true}
	}
	least, extended := during.plus(keep), during.plus(keep+min(keep, hour))
	switch {
	case f == nil || f.end.hi < least.lo:
		return extended
	case f.end.lo >= least.hi:
		return f.end
	}
	return span{lo: min(f.end.lo, extended.lo), hi: max(f.end.hi, extended.hi)}
}

func (m *machine) release(o op, now lua.Time) lua.ReleaseReply {
	l := m.held[o.lock]
	switch {
	case l == nil || l.holder != o.who:
		return lua.ReleaseReply{Status: lua.Gone}
	case o.holds > 0 && now > o.end:
		return lua.ReleaseReply{Status: lua.Void, Now: now}
	case o.holds > 0:
		l.holds = o.holds
		return lua.ReleaseReply{Status: lua.StillHeld, Now: now}
	}
	delete(m.held, o.lock)
	return lua.ReleaseReply{Status: lua.Freed, HasWaiters: m.hasQueue(o.lock)}
}

func (m *machine) transfer(o op, now lua.Time, during span) lua.TransferReply {
	l := m.held[o.lock]
	switch {
	case now > o.end:
		return lua.TransferReply{Status: lua.Void, Now: now}
	case l != nil && l.holder == o.to:
		l.end = l.end.renewed(during, o.lease)
		if m.fences[o.lock] == nil {
			m.grant(o.living(o.lease), now, during)
		}
		return lua.TransferReply{Status: lua.Granted, Fence: m.fences[o.lock].value, Now: now}
	case l == nil || l.holder != o.who:
		return lua.TransferReply{Status: lua.Gone, Now: now}
	}
	l.holder, l.holds, l.end = o.to, 1, during.plus(o.lease)
	return lua.TransferReply{Status: lua.Granted, Fence: m.grant(o, now, during), Now: now}
}

func (m *machine) renew(o op, during span) lua.RenewAnswer {
	l := m.held[o.lock]
	switch {
	case l == nil || l.holder != o.who:
		return lua.RenewGone
	case o.lease == 0:
		return lua.RenewHeld
	}
	l.end = l.end.renewed(during, o.lease)
	return lua.RenewDone
}

func (m *machine) force(o op) lua.ForceReleaseReply {
	l := m.held[o.lock]
	switch {
	case l == nil:
		return lua.ForceReleaseReply{Status: lua.NotHeld}
	case o.who != "" && o.who != l.holder:
		return lua.ForceReleaseReply{Status: lua.Busy, Holder: l.holder}
	}
	delete(m.held, o.lock)
	return lua.ForceReleaseReply{Status: lua.Freed, Holder: l.holder, HasWaiters: m.hasQueue(o.lock)}
}

func (s span) plus(d time.Duration) span {
	return span{lo: s.lo + d.Microseconds(), hi: s.hi + d.Microseconds()}
}

// renewed is exact: an acquisition has one lease all its life, and one that the clock
// has stretched is mended.
func (s span) renewed(during span, lease time.Duration) span {
	if lease == 0 {
		return s
	}
	return during.plus(lease)
}

func (s span) extended(during span, lease time.Duration) span {
	n := during.plus(lease)
	if s.forever {
		return n
	}
	return span{lo: max(s.lo, n.lo), hi: max(s.hi, n.hi)}
}

// contains says whether a TTL that was read in a span fits this end.
func (s span) contains(ttl time.Duration, during span, slack int64) bool {
	if s.forever || ttl < 0 {
		return s.forever == (ttl < 0)
	}
	us := ttl.Microseconds()
	return us >= s.lo-during.hi-slack && us <= s.hi-during.lo+slack
}

// compare reads everything that is stored, in one go, and compares it with the
// model.
func (m *machine) compare(t *rapid.T) {
	ctx := context.Background()
	pipe := m.b.rdb.Pipeline()
	keys := pipe.Keys(ctx, "*")
	var fields []*redis.MapStringStringCmd
	var fences []*redis.StringCmd
	var ends, fenceEnds []*redis.DurationCmd
	for i, k := range m.locks {
		fields = append(fields, pipe.HGetAll(ctx, k.Lock))
		ends = append(ends, pipe.PTTL(ctx, k.Lock))
		fenceEnds = append(fenceEnds, pipe.PTTL(ctx, k.Fence))
		fences = append(fences, nil)
		if m.fences[i] != nil {
			fences[i] = pipe.Get(ctx, k.Fence)
		}
	}
	l0 := m.leases(t)
	_, err := pipe.Exec(ctx)
	require.NoError(t, err)
	during := span{lo: l0, hi: m.leases(t)}

	want := slices.Clone(m.also)
	for i, k := range m.locks {
		if m.held[i] != nil {
			want = append(want, k.Lock)
		}
		if m.fences[i] != nil {
			want = append(want, k.Fence)
		}
	}
	slices.Sort(want)
	got := slices.Sorted(slices.Values(keys.Val()))
	require.True(t, slices.Equal(want, got), "keys: want %q, got %q", want, got)
	for i := range m.locks {
		if l := m.held[i]; l != nil {
			want := map[string]string{l.holder: strconv.Itoa(l.holds)}
			if l.about != "" {
				want["redlatch:about"] = l.about
			}
			require.Equal(t, want, fields[i].Val())
			require.True(t, l.end.contains(ends[i].Val(), during, m.slack), "lock expires in %v, not in %+v", ends[i].Val(), l.end)
		}
		if f := m.fences[i]; f != nil {
			require.Equal(t, strconv.FormatInt(f.value, 10), fences[i].Val())
			require.True(t, f.end.contains(fenceEnds[i].Val(), during, m.slack), "fence expires in %v, not in %+v", fenceEnds[i].Val(), f.end)
		}
	}
}
