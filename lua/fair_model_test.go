package lua_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/lua"
)

// TestFairScriptsBehaveLikeTheModel runs random commands of waiters, and those of
// plain mutexes among them, on the same locks: the model is that of the mutex, with a
// queue to each lock. Waiters die, are late, are removed; keys are lost, expire, and
// the clock is set back.
//
// On a real server a heartbeat that has ended is written by hand.
func TestFairScriptsBehaveLikeTheModel(t *testing.T) {
	c := newCoverage(t,
		"join granted", "join queued", "join busy", "join void", "join found its own grant", "join with an old ticket",
		"beat granted", "beat queued", "beat gone", "beat removed", "beat of a dead one in time",
		"leave freed", "leave left", "leave gone", "force fair freed", "force fair nobody", "force fair busy",
		"remove true", "remove false", "remove found the note", "granted to the next", "granted by another's call", "a grace", "a dead waiter buried",
		"a plain lock beside a queue", "a transfer beside a queue", "a release beside a queue", "copy",
		"leave of one that waits itself", "force fair of one that waits itself",
		"a note buried", "one without a heartbeat dropped", "a queue expired", "the clock was set back",
		"the clock was set back in a grace", "a grant for a lease shorter than the heartbeat",
		"a fence made again by a beat that takes nothing", "more dead than one call drops",
	)
	each(t, func(t *testing.T, b *backend) {
		b.check(t, c, func(t *rapid.T, bite *bites) { newFairMachine(t, b, bite).run(t) })
	})
}

const hourMS = int64(time.Hour / time.Millisecond)

type queued struct {
	id     string
	ticket int64
}

// storedQueue is the queue of one lock. Ends are in ms of the server's clock; a note
// about one that was removed is below zero; "grace" is one of them.
type storedQueue struct {
	waiters          []queued // by ticket
	alive            map[string]span
	ends, endsOfThem span // of the two keys; in the clock of leases
}

type fairMachine struct {
	*machine
	queues []*storedQueue
}

func newFairMachine(t *rapid.T, b *backend, bite *bites) *fairMachine {
	m := &fairMachine{machine: newMachine(t, b, bite)}
	m.twice = false // a second leave finds the next one's grant
	for range m.locks {
		q := &storedQueue{alive: map[string]span{}}
		q.forgetKeys()
		m.queues = append(m.queues, q)
	}
	m.verbs = map[string]func(*rapid.T, op){
		"join": m.join, "beat": m.beat, "leave": m.leave, "force fair": m.forceFair, "remove waiter": m.removeWaiter,
	}
	m.hasQueue = func(lock int) bool { return len(m.queues[lock].waiters) > 0 }
	return m
}

func (m *fairMachine) run(t *rapid.T) {
	actions := m.actions()
	for verb, plain := range map[string]string{"acquire": "a plain lock", "transfer": "a transfer", "release": "a release"} {
		act := actions[verb]
		actions[verb] = func(t *rapid.T) {
			act(t)
			if o := m.past[len(m.past)-1]; len(m.queues[o.lock].waiters) > 0 {
				m.bite.hit(plain + " beside a queue")
			}
		}
	}
	lose, pass := actions["remove"], actions["time"]
	actions["remove"] = func(t *rapid.T) { m.lose(t, lose) }
	actions["remove 2"] = actions["remove"]
	actions["time"] = func(t *rapid.T) { pass(t); m.expire() }
	for _, name := range []string{"late 1", "late 2", "late 3"} {
		actions[name] = m.late
	}
	for _, name := range []string{"join 1", "join 2", "join 3", "join 4", "join 5", "join 6"} {
		actions[name] = func(t *rapid.T) { m.do(t, m.drawJoin(t)) }
	}
	for _, name := range []string{"beat 1", "beat 2"} {
		actions[name] = func(t *rapid.T) { m.do(t, m.drawBeat(t)) }
	}
	for _, name := range []string{"leave 1", "leave 2"} {
		actions[name] = func(t *rapid.T) { m.do(t, m.drawWaiter(t, "leave")) }
	}
	actions["time 2"], actions["time 3"] = actions["time"], actions["time"]
	actions["force fair"] = func(t *rapid.T) {
		o := m.drawForce(t)
		o.verb = "force fair"
		m.do(t, o)
	}
	actions["remove waiter"] = func(t *rapid.T) { m.do(t, m.drawWaiter(t, "remove waiter")) }
	actions["remove waiter 2"] = actions["remove waiter"]
	actions["crowd"] = m.crowd
	actions["to a waiter"] = m.toAWaiter
	actions["without a fence"] = m.withoutFence
	actions[""] = m.compare
	t.Repeat(actions)
}

// drawBusy prefers a lock that somebody waits for.
func (m *fairMachine) drawBusy(t *rapid.T) int {
	lock := m.drawLock(t)
	if other := (lock + 1) % len(m.locks); len(m.queues[lock].alive) == 0 && len(m.queues[other].alive) > 0 {
		return other
	}
	return lock
}

// drawWaiter prefers who waits, or has the lock.
func (m *fairMachine) drawWaiter(t *rapid.T, verb string) op {
	lock := m.drawBusy(t)
	ids := []string{"a:1", "d:1"}
	for _, w := range m.queues[lock].waiters {
		ids = append(ids, w.id, w.id, w.id)
	}
	if l := m.held[lock]; l != nil {
		ids = append(ids, l.holder)
	}
	for id, end := range m.queues[lock].alive {
		if end.hi < 0 { // the note of one that was removed
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return op{verb: verb, lock: lock, who: rapid.SampledFrom(ids).Draw(t, "who"), keep: m.drawKeep(t)}
}

func (m *fairMachine) drawJoin(t *rapid.T) op {
	o := op{
		verb: "join", lock: m.drawBusy(t), who: rapid.SampledFrom([]string{"a:1", "a:2", "a:12", "b:1", "b:2", "d:1", "d:2"}).Draw(t, "who"),
		end: m.drawEnd(t), keep: m.drawKeep(t), ticket: rapid.SampledFrom([]int64{0, 0, 0, 5, 7}).Draw(t, "ticket"),
	}
	if rapid.IntRange(0, 2).Draw(t, "in time") > 0 {
		o.end = never
	}
	if rapid.IntRange(0, 4).Draw(t, "try") == 0 {
		o.who, o.try = "t:1", true // who tries has an id of its own, and never a place
	}
	return o
}

func (m *fairMachine) drawBeat(t *rapid.T) op {
	o := op{verb: "beat", keep: m.drawKeep(t)}
	for range rapid.IntRange(1, 4).Draw(t, "batch") {
		o.batch = append(o.batch, m.drawWaiter(t, ""))
	}
	o.lock, o.take = o.batch[0].lock, rapid.Bool().Draw(t, "take")
	return o
}

func (m *fairMachine) keys(lock int) lua.FairKeys {
	k := key.ForMutex(m.locks[lock].Lock)
	return lua.FairKeys{Lock: k.Lock, Fence: k.Fence, Queue: k.Queue, Alive: k.Alive}
}

// moment is when a command runs: between two looks at the clock.
type moment struct {
	m      *fairMachine
	t      *rapid.T
	c0, l0 int64
}

func (m *fairMachine) begin(t *rapid.T) moment {
	return moment{m, t, int64(serverTime(t, m.b.rdb)), m.leases(t)}
}

func (at moment) clockMS() span {
	return span{lo: at.c0 / 1000, hi: int64(serverTime(at.t, at.m.b.rdb)) / 1000}
}

func (at moment) leases() span { return span{lo: at.l0, hi: at.m.leases(at.t)} }

// now is the server's time in the script, where no reply says it: a fence tells it,
// if one was given out.
func (at moment) now(lock int) lua.Time {
	end := int64(serverTime(at.t, at.m.b.rdb))
	fence, err := at.m.b.rdb.Get(context.Background(), at.m.locks[lock].Fence).Int64()
	if err == nil && at.c0 <= fence && fence <= end {
		return lua.Time(fence)
	}
	return lua.Time(end)
}

func (s span) add(ms int64) span { return span{lo: s.lo + ms, hi: s.hi + ms} }

// The queue of the model.

func (q *storedQueue) place(id string) int {
	return slices.IndexFunc(q.waiters, func(w queued) bool { return w.id == id })
}

func (q *storedQueue) unqueue(id string) {
	q.waiters = slices.DeleteFunc(q.waiters, func(w queued) bool { return w.id == id })
	delete(q.alive, id)
	if len(q.waiters) == 0 {
		delete(q.alive, "grace")
	}
}

func (q *storedQueue) noteBeat(id string, now, during span) {
	keep := time.Minute + 10*hour
	q.ends, q.endsOfThem = q.ends.extended(during, keep), q.endsOfThem.extended(during, keep)
	q.alive[id] = now.add(hourMS)
}

// forgetKeys: a key of a sorted set ends with its last member, and its expiry with it.
func (q *storedQueue) forgetKeys() {
	if len(q.waiters) == 0 {
		q.ends = span{forever: true}
	}
	if len(q.alive) == 0 {
		q.endsOfThem = span{forever: true}
	}
}

// giveGrace says until when nobody counts as dead.
func (m *fairMachine) giveGrace(q *storedQueue, now span) span {
	grace := q.alive["grace"]
	var freshest span
	for id, end := range q.alive {
		if id != "grace" && end.lo > freshest.lo {
			freshest = end
		}
	}
	switch {
	case freshest.lo <= 0:
	case max(freshest.lo, grace.lo) > now.hi+hourMS:
		m.bite.hit("the clock was set back")
		if grace.lo > now.hi+hourMS {
			m.bite.hit("the clock was set back in a grace")
		}
		for id, end := range q.alive {
			if end.lo > now.hi+hourMS {
				q.alive[id] = now.add(hourMS)
			}
		}
		grace = q.alive["grace"]
	case freshest.lo > grace.lo && freshest.lo-now.lo < hourMS/2 && now.lo >= grace.lo+hourMS:
		m.bite.hit("a grace")
		grace = now.add(hourMS)
		q.alive["grace"] = grace
	}
	return grace
}

func (m *fairMachine) dropExpired(q *storedQueue, now, grace span) {
	if grace.lo > now.lo {
		return
	}
	for id, end := range maps.Clone(q.alive) {
		switch {
		case id == "grace", end.lo > now.lo, end.lo < -now.lo:
			continue
		case end.lo < 0:
			m.bite.hit("a note buried")
		default:
			m.bite.hit("a dead waiter buried")
		}
		q.unqueue(id)
	}
}

// head is the first in the queue, and for how long it lives yet.
func (m *fairMachine) head(q *storedQueue, now, grace span) (id string, left span) {
	for len(q.waiters) > 0 {
		id := q.waiters[0].id
		end, known := q.alive[id]
		if !known {
			m.bite.hit("one without a heartbeat dropped")
			q.unqueue(id)
			continue
		}
		atMost := func(ms int64) int64 { return max(min(ms, hourMS, leaseOf(id).Milliseconds()), 1) * 1000 }
		return id, span{lo: atMost(max(end.lo, grace.lo) - now.hi), hi: atMost(max(end.hi, grace.hi) - now.lo)}
	}
	return "", span{}
}

// grantNext gives the free lock to the first in the queue.
func (m *fairMachine) grantNext(o op, q *storedQueue, now lua.Time, nowMS, during, grace span) {
	id, left := m.head(q, nowMS, grace)
	if id == "" {
		return
	}
	m.bite.hit("granted to the next")
	if left.lo == leaseOf(id).Microseconds() && leaseOf(id) < hour {
		m.bite.hit("a grant for a lease shorter than the heartbeat")
	}
	q.unqueue(id)
	m.grant(o.living(leaseOf(id)), now, during)
	m.held[o.lock] = &storedLock{
		holder: id, about: "host-1", holds: 1, end: span{lo: during.lo + left.lo, hi: during.hi + left.hi},
	}
}

// passOn is what becomes of a free lock in which somebody is interested.
func (m *fairMachine) passOn(o op, at moment) {
	q := m.queues[o.lock]
	now := at.clockMS()
	grace := m.giveGrace(q, now)
	m.dropExpired(q, now, grace)
	m.grantNext(o, q, at.now(o.lock), now, at.leases(), grace)
}

// standing is the answer to a waiter, and checks the time that the holder has left.
func (m *fairMachine) standing(t *rapid.T, lock int, who string, got *lua.QueueState, at moment) lua.QueueState {
	q := m.queues[lock]
	want := lua.QueueState{Position: q.place(who) + 1, Length: len(q.waiters)}
	if want.Position == 0 {
		want.Position = len(q.waiters) + 1
	}
	l := m.held[lock]
	require.NotNil(t, l, "nobody waits for a free lock")
	want.Holder, want.Description = l.holder, l.about
	if f := m.fences[lock]; f != nil {
		want.Fence = f.value
	}
	require.True(t, l.end.contains(got.Remaining, at.leases(), m.slack), "remaining %v", got.Remaining)
	got.Remaining = 0
	return want
}

// extend is a grant that is found by who has it.
func (m *fairMachine) extend(o op, now lua.Time, during span) int64 {
	l := m.held[o.lock]
	if !o.untaken {
		l.end = l.end.renewed(during, leaseOf(o.who))
	}
	if m.fences[o.lock] == nil {
		if o.untaken && o.keep > 0 {
			m.bite.hit("a fence made again by a beat that takes nothing")
		}
		m.grant(o.living(leaseOf(o.who)), now, during)
	}
	return m.fences[o.lock].value
}

// The scripts.

func (m *fairMachine) join(t *rapid.T, o op) {
	at := m.begin(t)
	got, err := lua.Join(context.Background(), m.b.rdb, lua.JoinParams{
		Keys: m.keys(o.lock), Waiter: fairWaiter(o.who), Ticket: o.ticket, Try: o.try,
		VoidAfter: o.end, FenceRetention: o.keep, ClientChannels: key.ClientPrefix,
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, int64(got.Now), at.c0)
	during := at.leases()
	m.bite.hit("join " + statusNames[got.Status])
	m.joined(t, o, at, &got, during)
}

func (m *fairMachine) joined(t *rapid.T, o op, at moment, got *lua.JoinReply, during span) {
	q := m.queues[o.lock]
	defer q.forgetKeys()
	now, nowMS := got.Now, span{lo: got.Now.UnixMilli(), hi: got.Now.UnixMilli()}
	if now > o.end {
		require.Equal(t, lua.JoinReply{Status: lua.Void, Now: now}, *got)
		return
	}
	if l := m.held[o.lock]; l != nil && l.holder == o.who {
		m.bite.hit("join found its own grant")
		require.Equal(t, lua.JoinReply{Status: lua.Granted, Fence: m.extend(o, now, during), Now: now}, *got)
		return
	}
	grace := m.giveGrace(q, nowMS)
	m.dropExpired(q, nowMS, grace)
	if m.held[o.lock] == nil {
		if first, _ := m.head(q, nowMS, grace); first == "" || first == o.who {
			if first != "" {
				q.unqueue(first)
			}
			fence := m.grant(o, now, during)
			m.held[o.lock] = &storedLock{holder: o.who, about: "host-1", holds: 1, end: during.plus(leaseOf(o.who))}
			require.Equal(t, lua.JoinReply{Status: lua.Granted, Fence: fence, Now: now}, *got)
			return
		}
		m.bite.hit("granted by another's call")
		m.grantNext(o, q, now, nowMS, during, grace)
	}
	want := lua.JoinReply{Status: lua.Busy, Now: now}
	if !o.try {
		want.Status = lua.Queued
		if q.place(o.who) < 0 {
			ticket := o.ticket
			if ticket == 0 {
				ticket = int64(now)
				if n := len(q.waiters); n > 0 {
					ticket = max(ticket, q.waiters[n-1].ticket+1)
				}
			} else {
				m.bite.hit("join with an old ticket")
			}
			q.forgetKeys()
			q.waiters = append(q.waiters, queued{o.who, ticket})
			slices.SortFunc(q.waiters, func(a, b queued) int {
				return cmp.Or(cmp.Compare(a.ticket, b.ticket), strings.Compare(a.id, b.id))
			})
		}
		q.noteBeat(o.who, nowMS, during)
		want.Ticket = q.waiters[q.place(o.who)].ticket
	}
	want.QueueState = m.standing(t, o.lock, o.who, &got.QueueState, at)
	require.Equal(t, want, *got)
}

func (m *fairMachine) beat(t *rapid.T, o op) {
	at := m.begin(t)
	var batch []lua.Heartbeat
	for _, b := range o.batch {
		batch = append(batch, lua.Heartbeat{Keys: m.keys(b.lock), Waiter: fairWaiter(b.who)})
	}
	got, err := lua.Heartbeats(context.Background(), m.b.rdb, o.keep, key.ClientPrefix, o.take, batch)
	require.NoError(t, err)
	now, during := at.clockMS(), at.leases()

	// All are noted before anybody is taken for dead.
	want := make([]*lua.HeartbeatReply, len(batch))
	graces, judged := map[int]span{}, map[int]bool{}
	for i, b := range o.batch {
		b.keep, b.untaken = o.keep, !o.take
		q := m.queues[b.lock]
		end, known := q.alive[b.who]
		switch {
		case m.held[b.lock] != nil && m.held[b.lock].holder == b.who:
			want[i] = &lua.HeartbeatReply{Status: lua.Granted, Fence: m.extend(b, at.now(b.lock), during)}
		case q.place(b.who) >= 0:
			if _, given := graces[b.lock]; !given {
				graces[b.lock] = m.giveGrace(q, now)
			}
			if known && end.lo <= now.lo {
				m.bite.hit("beat of a dead one in time")
			}
			q.noteBeat(b.who, now, during)
		case known && end.lo < 0:
			want[i] = &lua.HeartbeatReply{Status: lua.Removed}
		default:
			want[i] = &lua.HeartbeatReply{Status: lua.Gone}
		}
	}
	for i, b := range o.batch {
		b.keep, b.untaken = o.keep, !o.take
		q := m.queues[b.lock]
		if want[i] == nil && !judged[b.lock] {
			judged[b.lock] = true
			m.dropExpired(q, now, graces[b.lock])
			if m.held[b.lock] == nil {
				m.grantNext(b, q, at.now(b.lock), now, during, graces[b.lock])
			}
		}
		switch {
		case want[i] != nil:
		case m.held[b.lock].holder == b.who:
			want[i] = &lua.HeartbeatReply{Status: lua.Granted, Fence: m.extend(b, at.now(b.lock), during)}
		default:
			want[i] = &lua.HeartbeatReply{Status: lua.Queued, QueueState: m.standing(t, b.lock, b.who, &got[i].QueueState, at)}
		}
		q.forgetKeys()
		require.Equal(t, *want[i], got[i], "%d of %+v", i, o.batch)
		m.bite.hit("beat " + statusNames[got[i].Status])
	}
}

func (m *fairMachine) leave(t *rapid.T, o op) {
	at := m.begin(t)
	got, err := lua.ReleaseFair(context.Background(), m.b.rdb, lua.ReleaseFairParams{
		Keys: m.keys(o.lock), Waiter: fairWaiter(o.who), Channel: m.locks[o.lock].Channel, FenceRetention: o.keep, ClientChannels: key.ClientPrefix,
	})
	require.NoError(t, err)
	q := m.queues[o.lock]
	defer q.forgetKeys()
	want := lua.ReleaseFairReply{Status: lua.Gone}
	interest := len(q.waiters) > 0
	switch l := m.held[o.lock]; {
	case l != nil && l.holder == o.who:
		want.Status = lua.Freed
		delete(m.held, o.lock)
	case q.place(o.who) >= 0:
		want.Status = lua.LeftQueue
		q.unqueue(o.who)
	}
	if m.held[o.lock] == nil && interest {
		m.passOn(o, at)
	}
	require.Equal(t, want, got)
	m.bite.hit("leave " + statusNames[got.Status])
}

func (m *fairMachine) forceFair(t *rapid.T, o op) {
	at := m.begin(t)
	got, err := lua.ForceReleaseFair(context.Background(), m.b.rdb, lua.ForceReleaseFairParams{
		Keys: m.keys(o.lock), Expected: o.who, Channel: m.locks[o.lock].Channel, FenceRetention: o.keep, ClientChannels: key.ClientPrefix,
	})
	require.NoError(t, err)
	q := m.queues[o.lock]
	defer q.forgetKeys()
	want := m.force(o)
	want.HasWaiters = false // it is handed on in the same step
	if m.held[o.lock] == nil && len(q.waiters) > 0 {
		m.passOn(o, at)
	}
	require.Equal(t, want, got)
	m.bite.hit("force fair " + statusNames[got.Status])
}

func (m *fairMachine) removeWaiter(t *rapid.T, o op) {
	at := m.begin(t)
	k := m.locks[o.lock]
	got, err := lua.Remove(context.Background(), m.b.rdb, k.Queue, k.Alive, fairWaiter(o.who), key.ClientPrefix)
	require.NoError(t, err)
	q := m.queues[o.lock]
	if q.place(o.who) < 0 {
		noted := q.alive[o.who].hi < 0
		require.Equal(t, noted, got)
		if noted {
			m.bite.hit("remove found the note")
		} else {
			m.bite.hit("remove false")
		}
		return
	}
	require.True(t, got)
	m.bite.hit("remove true")
	q.unqueue(o.who)
	now, note := at.clockMS(), 3*hourMS
	q.alive[o.who] = span{lo: -now.hi - note, hi: -now.lo - note}
	q.forgetKeys()
	q.endsOfThem = q.endsOfThem.extended(at.leases(), 3*hour)
}

// What happens to the queue besides.

// toAWaiter transfers a lock to the first that waits for it, which then ends it. Its place gets it
// the lock again.
func (m *fairMachine) toAWaiter(t *rapid.T) {
	lock := m.drawBusy(t)
	l, q := m.held[lock], m.queues[lock]
	if l == nil || len(q.waiters) == 0 || q.waiters[0].id == l.holder {
		t.Skip("nobody has it, or nobody else waits")
	}
	first := q.waiters[0].id
	m.do(t, op{verb: "transfer", lock: lock, who: l.holder, to: first, end: never, lease: leaseOf(first), keep: m.drawKeep(t)})
	m.compare(t)
	o := op{verb: rapid.SampledFrom([]string{"leave", "force fair"}).Draw(t, "then"), lock: lock, who: first, keep: m.drawKeep(t)}
	waits := q.place(first) == 0
	m.do(t, o)
	if again := m.held[lock]; waits && again != nil && again.holder == first {
		m.bite.hit(o.verb + " of one that waits itself")
	}
}

// withoutFence has an operator delete the fence of a lock, then its holder beats.
func (m *fairMachine) withoutFence(t *rapid.T) {
	lock := m.drawBusy(t)
	if m.held[lock] == nil || m.fences[lock] == nil {
		t.Skip("nobody has it, or it has no fence")
	}
	require.NoError(t, m.b.rdb.Del(context.Background(), m.locks[lock].Fence).Err())
	m.bite.hit("fence key lost")
	delete(m.fences, lock)
	o := op{verb: "beat", lock: lock, who: m.held[lock].holder, keep: m.drawKeep(t), take: rapid.Bool().Draw(t, "take")}
	o.batch = []op{o}
	m.do(t, o)
}

// crowd has very many waiters die: more than one call drops. Somebody lives, so that
// nobody gets a grace; a free lock goes to the first that lives, by the second beat.
func (m *fairMachine) crowd(t *rapid.T) {
	lock := m.drawBusy(t)
	q, now := m.queues[lock], serverTime(t, m.b.rdb).UnixMilli()
	held := m.held[lock]
	living := slices.IndexFunc(q.waiters, func(w queued) bool {
		left := q.alive[w.id].lo - now
		has := held != nil && held.holder == w.id // a beat of the holder looks at no queue
		return left > hourMS/2 && left <= hourMS && !has
	})
	if living < 0 || q.alive["grace"].lo > now || rapid.IntRange(0, 4).Draw(t, "crowd") > 0 {
		t.Skip("nobody lives, or all do")
	}
	for _, end := range q.alive {
		if end.lo <= now && end.lo >= -now || end.lo > now+hourMS {
			t.Skip("others are dead, or the clock was set back")
		}
	}
	var dead []redis.Z
	for i := range 750 {
		dead = append(dead, redis.Z{Score: float64(i + 1), Member: fmt.Sprintf("x:%d 1 3600000 60000", i)})
	}
	k, o := m.locks[lock], op{verb: "beat", lock: lock, who: q.waiters[living].id}
	o.batch = []op{o}
	require.NoError(t, m.b.rdb.ZAdd(context.Background(), k.Queue, dead...).Err())
	require.NoError(t, m.b.rdb.ZAdd(context.Background(), k.Alive, dead...).Err())
	got, err := lua.Heartbeats(context.Background(), m.b.rdb, 0, key.ClientPrefix, true, []lua.Heartbeat{{Keys: m.keys(lock), Waiter: fairWaiter(o.who)}})
	require.NoError(t, err)
	require.Equal(t, m.held[lock] == nil, got[0].Status == lua.Queued && got[0].QueueState.Holder == "" && got[0].QueueState.Remaining == 0, "%+v", got[0])
	m.bite.hit("more dead than one call drops")
	m.do(t, o)
}

// late writes a heartbeat that has ended, or is about to, or that a clock wrote which
// was ahead; or the end of a note, or of a grace.
func (m *fairMachine) late(t *rapid.T) {
	lock := m.drawBusy(t)
	q := m.queues[lock]
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(q.alive)), func(id string) bool { return id == "grace" })
	if len(ids) == 0 {
		t.Skip("nobody waits")
	}
	if len(q.waiters) > 0 {
		ids = append(ids, "grace")
	}
	who := rapid.SampledFrom(ids).Draw(t, "who")
	end := serverTime(t, m.b.rdb).UnixMilli() + rapid.SampledFrom([]int64{-120, -30, 20, 90}).Draw(t, "minutes")*60_000
	if q.alive[who].hi < 0 {
		end = -end
	}
	z := redis.Z{Score: float64(end), Member: member(who)}
	if who == "grace" {
		z.Member = who
	}
	require.NoError(t, m.b.rdb.ZAdd(context.Background(), m.locks[lock].Alive, z).Err())
	q.alive[who] = span{lo: end, hi: end}
}

func member(who string) string {
	return fmt.Sprintf("%s 1 3600000 %d host-1", who, leaseOf(who).Milliseconds())
}

// leaseOf is the lease of an acquisition, the same all its life; some are shorter than
// the heartbeat.
func leaseOf(who string) time.Duration {
	return map[string]time.Duration{"a:1": 20 * time.Minute, "a:2": hour, "b:1": 90 * time.Minute, "d:2": 30 * time.Minute}[who] + time.Minute
}

func fairWaiter(who string) lua.Waiter {
	w := waiter(who)
	w.Lease = leaseOf(who)
	return w
}

// lose is an eviction, an operator, a FLUSHALL.
func (m *fairMachine) lose(t *rapid.T, plain func(t *rapid.T)) {
	ctx, lock := context.Background(), m.drawBusy(t)
	q := m.queues[lock]
	switch rapid.SampledFrom([]string{"queue", "alive", "alive", "both", "plain", "plain"}).Draw(t, "which") {
	case "queue":
		require.NoError(t, m.b.rdb.Del(ctx, m.locks[lock].Queue).Err())
		q.waiters = nil
	case "alive":
		require.NoError(t, m.b.rdb.Del(ctx, m.locks[lock].Alive).Err())
		clear(q.alive)
	case "both":
		require.NoError(t, m.b.rdb.Del(ctx, m.locks[lock].Queue, m.locks[lock].Alive).Err())
		q.waiters = nil
		clear(q.alive)
	default:
		plain(t)
		if n, err := m.b.rdb.DBSize(ctx).Result(); err == nil && n == 0 {
			for _, q := range m.queues {
				q.waiters = nil
				clear(q.alive)
				q.forgetKeys()
			}
		}
	}
	q.forgetKeys()
}

func (m *fairMachine) expire() {
	for _, q := range m.queues {
		if !q.ends.forever && q.ends.hi <= m.lifted { // and so somebody is in it
			m.bite.hit("a queue expired")
			q.waiters = nil
		}
		if !q.endsOfThem.forever && q.endsOfThem.hi <= m.lifted {
			clear(q.alive)
		}
		q.forgetKeys()
	}
}

// compare is that of the mutex, and reads the queues besides.
func (m *fairMachine) compare(t *rapid.T) {
	ctx := context.Background()
	m.also = nil
	for lock, q := range m.queues {
		k := m.locks[lock]
		if len(q.waiters) > 0 {
			m.also = append(m.also, k.Queue)
		}
		if len(q.alive) > 0 {
			m.also = append(m.also, k.Alive)
		}
	}
	m.machine.compare(t)
	for lock, q := range m.queues {
		k, l0 := m.locks[lock], m.leases(t)
		pipe := m.b.rdb.Pipeline()
		waiters, alive := pipe.ZRangeWithScores(ctx, k.Queue, 0, -1), pipe.ZRangeWithScores(ctx, k.Alive, 0, -1)
		ends, endsOfThem := pipe.PTTL(ctx, k.Queue), pipe.PTTL(ctx, k.Alive)
		_, err := pipe.Exec(ctx)
		require.NoError(t, err)
		during := span{lo: l0, hi: m.leases(t)}
		var want []redis.Z
		for _, w := range q.waiters {
			want = append(want, redis.Z{Score: float64(w.ticket), Member: member(w.id)})
		}
		require.ElementsMatch(t, want, waiters.Val())
		for _, z := range alive.Val() {
			id, _, _ := strings.Cut(z.Member.(string), " ")
			end, known := q.alive[id]
			require.True(t, known, "%s is not dead", id)
			require.True(t, float64(end.lo) <= z.Score && z.Score <= float64(end.hi), "%s until %.0f, not %+v", id, z.Score, end)
		}
		require.Len(t, alive.Val(), len(q.alive))
		if len(q.waiters) > 0 {
			require.True(t, q.ends.contains(ends.Val(), during, m.slack), "queue expires in %v, not in %+v", ends.Val(), q.ends)
		}
		if len(q.alive) > 0 {
			require.True(t, q.endsOfThem.contains(endsOfThem.Val(), during, m.slack), "heartbeats expire in %v, not in %+v", endsOfThem.Val(), q.endsOfThem)
		}
	}
}
