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

// TestSemaphoreScriptsBehaveLikeTheModel runs random commands of several clients
// on one semaphore: copies of earlier ones among them, crashes of holders and of
// waiters, the passing of time, loss of data. A plain Go model says what each
// must answer and what must be stored after it.
//
// All ends are whole half hours from the clock: the embedded server's stands still
// unless the test moves it, and a real one moves by less than rounding takes away;
// there an end that has passed is written by hand.
func TestSemaphoreScriptsBehaveLikeTheModel(t *testing.T) {
	c := newCoverage(t,
		"acquire granted", "acquire queued", "acquire busy", "acquire void", "acquire differs", "acquire too many",
		"acquire again", "beat granted", "beat queued", "beat gone", "release freed", "release left", "release gone",
		"renew extended", "renew held", "renew gone", "force freed", "force nobody", "resize freed", "resize superseded", "resize void", "resize again",
		"copy", "served by another's call", "several served at once", "a grace", "a dead waiter buried",
		"a waiter notified of the limit", "the limit was raised again in time", "over the limit after a resize",
		"an expired permit found", "a key expired", "a key kept for an entry", "the clock was set back",
		"the clock was set back in a grace", "a permit mended", "a grant for a lease shorter than the heartbeat",
		"more dead than one call drops", "the one to end waited, and was served",
	)
	each(t, func(t *testing.T, b *backend) {
		b.check(t, c, func(t *rapid.T, bite *bites) { newPermitMachine(t, b, bite).run(t) })
	})
}

const (
	half      = 30 * time.Minute
	heartbeat = 4 // halves
	fullLease = 8
)

var (
	permitNames   = key.ForSemaphore("render")
	semaphoreKeys = lua.SemaphoreKeys(permitNames.Args)
)

type storedPermit struct{ units, end int }

type storedWaiter struct {
	id            string
	units, ticket int
	overmuch      bool // Redis answered that it wants more than the limit
}

// leases are in halves, of the acquisitions of each client; some are shorter than the
// heartbeat.
func permitLease(id string) int { return map[byte]int{'a': fullLease, 'b': 5, 'c': 2}[id[0]] }

// permitModel is a semaphore in Go. Times are halves since some day, above zero.
type permitModel struct {
	now             int
	limit, declared int // 0: none known
	stamp           int // of the last resize; 0: there was none
	permits         map[string]storedPermit
	described       map[string]int // the units that the description of an acquisition says
	queue           []storedWaiter // by ticket
	alive           map[string]int
	grace           int
	tickets         int
	keyEnd          int // of the key of the permits; 0: for ever
	bite            *bites
}

// keep is what is written about the key with every entry, and with a new limit.
func (m *permitModel) keep(o permitOp, entry int) {
	if o.keep == 0 || m.keyEnd == 0 {
		m.keyEnd = 0
		return
	}
	least := max(o.keep, entry)
	if m.keyEnd >= m.now+least {
		return
	}
	if entry > o.keep {
		m.bite.hit("a key kept for an entry")
	}
	m.keyEnd = m.now + withReserve(least)
}

// withReserve is for how long a key is kept that must be kept for so many halves: up to an hour
// more.
func withReserve(halves int) int { return halves + min(halves, 2) }

// begin is the first use of a semaphore.
func (m *permitModel) begin(o permitOp) {
	if m.limit == 0 {
		m.limit, m.declared, m.stamp, m.keyEnd = o.limit, o.limit, 0, 0
		clear(m.described)
		if o.keep > 0 {
			m.keyEnd = m.now + withReserve(o.keep)
		}
	}
}

func (m *permitModel) free() int {
	free := m.limit
	for _, p := range m.permits {
		if p.end > m.now {
			free -= p.units
		}
	}
	return free
}

// next is when a waiter looks again: when a lease ends, or the first in the queue,
// which does not fit, counts as dead.
func (m *permitModel) next(behind bool) int {
	next := -1
	if behind {
		next = min(max(m.alive[m.queue[0].id], m.grace)-m.now, heartbeat)
	}
	for _, p := range m.permits {
		if left := p.end - m.now; left > 0 && (next < 0 || left < next) {
			next = left
		}
	}
	return next
}

func (m *permitModel) extend(o permitOp, lease int) bool {
	p, known := m.permits[o.id]
	if !known || p.end <= m.now {
		return false
	}
	if lease > 0 {
		if p.end > m.now+lease {
			m.bite.hit("a permit mended")
		}
		p.end = m.now + lease
		m.permits[o.id] = p
		m.keep(o, lease)
	}
	return true
}

func (m *permitModel) prune() {
	for id, p := range maps.Clone(m.permits) {
		if p.end <= m.now {
			m.drop(id)
		}
	}
}

func (m *permitModel) drop(id string) {
	delete(m.permits, id)
	delete(m.described, id)
}

func (m *permitModel) grant(id string, units, end int) {
	m.permits[id] = storedPermit{units: units, end: end}
	m.described[id] = units
}

func (m *permitModel) place(id string) int {
	return slices.IndexFunc(m.queue, func(w storedWaiter) bool { return w.id == id })
}

func (m *permitModel) unqueue(id string) {
	m.queue = slices.DeleteFunc(m.queue, func(w storedWaiter) bool { return w.id == id })
	delete(m.alive, id)
	if len(m.queue) == 0 {
		m.grace = 0
	}
}

func (m *permitModel) giveGrace() {
	if len(m.alive) == 0 {
		return
	}
	freshest := slices.Max(slices.Collect(maps.Values(m.alive)))
	if top := m.now + heartbeat; max(freshest, m.grace) > top {
		m.bite.hit("the clock was set back")
		if m.grace > top {
			m.bite.hit("the clock was set back in a grace")
		}
		for id, end := range m.alive {
			m.alive[id] = min(end, top)
		}
		m.grace = min(m.grace, top)
		return
	}
	if m.grace < freshest && freshest-m.now < heartbeat/2 && (m.grace == 0 || m.now >= m.grace+heartbeat) {
		m.grace = m.now + heartbeat
		m.bite.hit("a grace")
	}
}

func (m *permitModel) dropExpired() {
	if m.grace > m.now {
		return
	}
	for id, end := range maps.Clone(m.alive) {
		if end <= m.now {
			m.unqueue(id)
			m.bite.hit("a dead waiter buried")
		}
	}
}

func (m *permitModel) serve(o permitOp, asking string) {
	served := 0
	for len(m.queue) > 0 {
		w := m.queue[0]
		end, lives := m.alive[w.id]
		switch {
		case !lives:
			m.unqueue(w.id)
			continue
		case w.units > m.free():
			return
		}
		lease := min(max(end, m.grace)-m.now, heartbeat)
		if permitLease(w.id) < lease {
			lease = permitLease(w.id)
			m.bite.hit("a grant for a lease shorter than the heartbeat")
		}
		if w.overmuch {
			m.bite.hit("the limit was raised again in time")
		}
		m.grant(w.id, w.units, m.now+lease)
		m.keep(o, lease)
		m.unqueue(w.id)
		if served++; served > 1 {
			m.bite.hit("several served at once")
		}
		if w.id != asking {
			m.bite.hit("served by another's call")
		}
	}
}

// pass is what every call does that may have made units free.
func (m *permitModel) pass(o permitOp) {
	m.prune()
	if len(m.queue) > 0 && m.limit > 0 {
		m.giveGrace()
		m.dropExpired()
		m.serve(o, "")
	}
}

func (m *permitModel) join(id string, units, ticket int) {
	if m.place(id) < 0 {
		if ticket == 0 {
			m.tickets++
			ticket = 1000 + m.tickets
		}
		m.queue = append(m.queue, storedWaiter{id: id, units: units, ticket: ticket})
		slices.SortFunc(m.queue, func(a, b storedWaiter) int {
			return cmp.Or(cmp.Compare(a.ticket, b.ticket), strings.Compare(a.id, b.id))
		})
	}
	m.alive[id] = m.now + heartbeat
}

func (m *permitModel) room(position int, behind bool) string {
	return fmt.Sprintf(" %d of %d, free %d of %d, next %d", position, len(m.queue), m.free(), m.limit, m.next(behind))
}

func (m *permitModel) acquire(o permitOp) string {
	if o.late {
		return "void"
	}
	m.begin(o)
	switch {
	case o.limit != m.limit && o.limit != m.declared:
		return fmt.Sprintf("differs %d %d", m.limit, m.declared)
	case m.extend(o, permitLease(o.id)):
		m.bite.hit("acquire again")
		return "granted"
	case o.units > m.limit:
		return fmt.Sprintf("too many %d", m.limit)
	}
	m.prune()
	if len(m.queue) > 0 {
		m.giveGrace()
		if !o.try {
			m.join(o.id, o.units, o.ticket)
		}
		m.dropExpired()
		m.serve(o, o.id)
		if m.extend(o, permitLease(o.id)) {
			return "granted"
		}
	}
	behind := len(m.queue) > 0
	switch {
	case !behind && o.units <= m.free():
		m.grant(o.id, o.units, m.now+permitLease(o.id))
		m.keep(o, permitLease(o.id))
		return "granted"
	case o.try:
		return "busy" + m.room(len(m.queue)+1, behind)
	}
	m.join(o.id, o.units, o.ticket)
	return "queued" + m.room(m.place(o.id)+1, behind)
}

func (m *permitModel) beat(o permitOp) string {
	if m.extend(o, permitLease(o.id)) {
		return "granted"
	}
	if m.place(o.id) < 0 {
		return "gone"
	}
	m.giveGrace()
	m.alive[o.id] = m.now + heartbeat
	m.begin(o)
	m.prune()
	m.dropExpired()
	m.serve(o, o.id)
	if m.extend(o, permitLease(o.id)) {
		return "granted"
	}
	if o.units > m.limit {
		m.bite.hit("a waiter notified of the limit")
		m.queue[m.place(o.id)].overmuch = true
		return fmt.Sprintf("too many %d", m.limit)
	}
	return "queued" + m.room(m.place(o.id)+1, true)
}

func (m *permitModel) release(o permitOp) string {
	p, has := m.permits[o.id]
	m.drop(o.id)
	answer := "gone"
	switch {
	case has && p.end > m.now:
		answer = "freed"
	case m.place(o.id) >= 0:
		m.unqueue(o.id)
		answer = "left"
	case has:
		m.bite.hit("an expired permit found")
	}
	m.pass(o)
	return answer
}

func (m *permitModel) renew(o permitOp) string {
	switch {
	case !m.extend(o, o.lease):
		return "gone"
	case o.lease == 0:
		return "held"
	}
	return "extended"
}

func (m *permitModel) resize(o permitOp) string {
	if o.late {
		return "void"
	}
	if m.limit > 0 && o.stamp <= m.stamp {
		if o.stamp < m.stamp || o.units != m.limit || o.limit != m.declared {
			return fmt.Sprintf("superseded %d", m.stamp)
		}
		m.bite.hit("resize again")
	}
	answer := fmt.Sprintf("freed %d", m.limit)
	m.begin(o)
	m.limit, m.declared, m.stamp = o.units, o.limit, o.stamp
	m.keep(o, 0)
	if m.free() < 0 {
		m.bite.hit("over the limit after a resize")
	}
	m.pass(o)
	return answer
}

func (m *permitModel) force(o permitOp) string {
	p, has := m.permits[o.id]
	m.drop(o.id)
	units := 0
	if has && p.end > m.now {
		units = p.units
	}
	m.pass(o)
	if _, served := m.permits[o.id]; served {
		m.bite.hit("the one to end waited, and was served")
	}
	return fmt.Sprintf("units %d", units)
}

// content is everything that is stored, in the form in which stored reads it.
func (m *permitModel) content() string {
	var lines []string
	for _, id := range slices.Sorted(maps.Keys(m.permits)) {
		p := m.permits[id]
		lines = append(lines, fmt.Sprintf("permit %s x%d ends %+d", id, p.units, p.end-m.now))
	}
	if m.limit > 0 { // else the next limit deletes the descriptions
		lines = append(lines, fmt.Sprintf("limit %d declared %d resized %d", m.limit, m.declared, m.stamp))
		for _, id := range slices.Sorted(maps.Keys(m.described)) {
			lines = append(lines, fmt.Sprintf("description %s x%d", id, m.described[id]))
		}
	}
	for _, w := range m.queue {
		lines = append(lines, fmt.Sprintf("queued %s x%d", w.id, w.units))
	}
	for _, id := range slices.Sorted(maps.Keys(m.alive)) {
		lines = append(lines, fmt.Sprintf("alive %s %+d", id, m.alive[id]-m.now))
	}
	if m.grace > 0 {
		lines = append(lines, fmt.Sprintf("alive grace %+d", m.grace-m.now))
	}
	return strings.Join(lines, "\n")
}

type permitOp struct {
	verb, id      string
	units, limit  int
	lease, ticket int // a lease only of a renewal: 0 only looks
	keep          int // halves; 0: for ever
	stamp         int // of a resize
	try, late     bool
}

func (o permitOp) waiter() lua.Waiter {
	lease := time.Duration(permitLease(o.id)) * half
	return lua.Waiter{Acquisition: o.id, Units: o.units, Heartbeat: heartbeat * half, Lease: lease, Description: "me"}
}

// member is how the waiter stands in the queue.
func (o permitOp) member() string {
	w := o.waiter()
	return fmt.Sprintf("%s %d %d %d %s", w.Acquisition, w.Units, w.Heartbeat.Milliseconds(), w.Lease.Milliseconds(), w.Description)
}

type permitMachine struct {
	permitModel
	b     *backend
	clock time.Time // embedded server only
	past  []permitOp
	keeps []int // what the clients are set to, in halves
}

func newPermitMachine(t *rapid.T, b *backend, bite *bites) *permitMachine {
	keeps := rapid.SampledFrom([][]int{{0}, {1, 2}, {1, 3, 30}, {2, 30, 0}}).Draw(t, "retentions")
	m := &permitMachine{b: b, keeps: keeps, permitModel: permitModel{
		now: 1000, permits: map[string]storedPermit{}, described: map[string]int{}, alive: map[string]int{}, bite: bite,
	}}
	require.NoError(t, b.rdb.FlushAll(context.Background()).Err())
	if b.mini != nil {
		m.clock = time.UnixMicro(1_800_000_000_000_000)
		b.mini.SetTime(m.clock)
	}
	return m
}

func (m *permitMachine) run(t *rapid.T) {
	actions := map[string]func(*rapid.T){
		"copy": func(t *rapid.T) {
			if len(m.past) == 0 {
				t.Skip("nothing was sent yet")
			}
			m.bite.hit("copy")
			m.do(t, rapid.SampledFrom(m.past).Draw(t, "which"))
		},
		"time":  func(t *rapid.T) { m.passTime(t, rapid.IntRange(1, 6).Draw(t, "halves")) },
		"keys":  m.outlastKey,
		"back":  func(t *rapid.T) { m.setBack(t, rapid.IntRange(1, 6).Draw(t, "halves")) },
		"crowd": m.crowd,
		"dip":   m.dip,
		"grace": m.setBackInAGrace,
		"ends":  func(t *rapid.T) { m.endSomething(t) },
		"first": m.forceFirst,
		"loss":  func(t *rapid.T) { m.lose(t) },
		"":      func(t *rapid.T) { require.Equal(t, m.content(), m.stored(t)) },
	}
	actions["ends 2"] = actions["ends"]
	for i, verb := range []string{"acquire", "acquire", "acquire", "beat", "beat", "release", "release", "renew", "resize", "force"} {
		actions[fmt.Sprintf("%s %d", verb, i)] = func(t *rapid.T) {
			for range 2 {
				m.do(t, m.draw(t, verb))
				require.Equal(t, m.content(), m.stored(t))
			}
		}
	}
	t.Repeat(actions)
}

// draw prefers ids that are known, so that the interesting branches are reached.
// An id always wants the same units.
func (m *permitMachine) draw(t *rapid.T, verb string) permitOp {
	ids := []string{"a:1", "a:2", "a:22", "b:1", "b:3", "b:6", "c:1", "c:2"}
	if verb != "acquire" {
		for id := range m.permits {
			ids = append(ids, id, id)
		}
		for _, w := range m.queue {
			ids = append(ids, w.id, w.id)
		}
		slices.Sort(ids)
	}
	o := permitOp{verb: verb, id: rapid.SampledFrom(ids).Draw(t, "id"), keep: rapid.SampledFrom(m.keeps).Draw(t, "keep")}
	_, _ = fmt.Sscanf(o.id[strings.Index(o.id, ":")+1:], "%d", &o.units)
	o.units = min(o.units, 7)
	o.limit = rapid.SampledFrom([]int{7, 7, 7, 7, 5, 9}).Draw(t, "limit")
	o.late = rapid.IntRange(0, 9).Draw(t, "late") == 0
	switch verb {
	case "acquire":
		o.try = rapid.IntRange(0, 4).Draw(t, "try") == 0
		o.ticket = rapid.SampledFrom([]int{0, 0, 0, 5}).Draw(t, "ticket")
	case "renew":
		o.lease = permitLease(o.id) * rapid.IntRange(0, 1).Draw(t, "extend")
	case "resize":
		o.units = rapid.IntRange(1, 9).Draw(t, "to")
		o.stamp = m.stamp + rapid.SampledFrom([]int{1, 1, 1, 2, 0, -1}).Draw(t, "stamp after the last")
		o.stamp = max(o.stamp, 1)
	}
	return o
}

func (m *permitMachine) passTime(t *rapid.T, halves int) {
	if m.b.mini == nil {
		t.Skip("a real server's clock runs by itself")
	}
	m.now += halves
	m.clock = m.clock.Add(time.Duration(halves) * half)
	m.b.mini.SetTime(m.clock)
	for _, k := range []string{permitNames.Queue, permitNames.Alive} { // their ends are the business of the other model
		require.NoError(t, m.b.rdb.Persist(context.Background(), k).Err())
	}
	m.b.mini.FastForward(time.Duration(halves) * half)
	if m.limit > 0 && m.keyEnd > 0 && m.keyEnd <= m.now {
		m.bite.hit("a key expired")
		for id, p := range m.permits {
			require.LessOrEqual(t, p.end, m.now, "the key ended before %s", id)
		}
		clear(m.permits)
		clear(m.described)
		m.limit, m.declared, m.stamp = 0, 0, 0
	}
}

// outlastKey lets time pass until the key of the permits expires. By single steps this would hardly
// happen.
func (m *permitMachine) outlastKey(t *rapid.T) {
	if m.keyEnd <= m.now || !rapid.Bool().Draw(t, "to the end of the key") {
		t.Skip("no key has an end, or it stays")
	}
	m.passTime(t, m.keyEnd-m.now)
}

// setBack is the server's clock, by which keys expire too.
func (m *permitMachine) setBack(t *rapid.T, halves int) {
	ctx, d := context.Background(), time.Duration(halves)*half
	if m.b.mini == nil {
		t.Skip("a real server's clock runs by itself")
	}
	m.now -= halves
	m.clock = m.clock.Add(-d)
	m.b.mini.SetTime(m.clock)
	for _, k := range []string{permitNames.Permits, permitNames.Holders} {
		if ttl := m.b.rdb.PTTL(ctx, k).Val(); ttl > 0 {
			require.NoError(t, m.b.rdb.PExpire(ctx, k, ttl+d).Err())
		}
	}
}

// dip lowers the limit below what a waiter wants, lets the waiter hear of it, and raises
// the limit before the waiter has given its place up.
func (m *permitMachine) dip(t *rapid.T) {
	large := slices.IndexFunc(m.queue, func(w storedWaiter) bool { return w.units > 1 })
	if large < 0 || m.limit == 0 {
		t.Skip("nobody waits for more than one unit")
	}
	w, declared := m.queue[large], m.declared
	m.do(t, permitOp{verb: "resize", id: w.id, units: w.units - 1, limit: declared, keep: m.keeps[0], stamp: m.stamp + 1})
	m.do(t, permitOp{verb: "beat", id: w.id, units: w.units, limit: declared, keep: m.keeps[0]})
	m.do(t, permitOp{verb: "resize", id: w.id, units: 9, limit: declared, keep: m.keeps[0], stamp: m.stamp + 1})
	require.Equal(t, m.content(), m.stored(t))
}

// setBackInAGrace sets the clock back after the waiters were late, and may have got a grace.
func (m *permitMachine) setBackInAGrace(t *rapid.T) {
	if len(m.queue) == 0 || m.limit == 0 || m.b.mini == nil {
		t.Skip("nobody waits, or the clock runs by itself")
	}
	w := m.queue[0]
	beat := permitOp{verb: "beat", id: w.id, units: w.units, limit: m.declared, keep: m.keeps[0]}
	m.passTime(t, heartbeat-1)
	m.do(t, beat)
	m.setBack(t, heartbeat/2)
	m.do(t, beat)
	require.Equal(t, m.content(), m.stored(t))
}

// crowd has very many waiters die: more than one call drops. Somebody lives, so that
// nobody gets a grace, and the answer is to ask again at once.
func (m *permitMachine) crowd(t *rapid.T) {
	living := slices.IndexFunc(m.queue, func(w storedWaiter) bool { return m.alive[w.id] >= m.now+heartbeat/2 })
	if living < 0 || m.limit == 0 || m.grace > m.now || slices.Max(slices.Collect(maps.Values(m.alive))) > m.now+heartbeat {
		t.Skip("nobody lives, or all do")
	}
	ctx, w := context.Background(), m.queue[living]
	var dead []redis.Z
	for i := range 750 {
		dead = append(dead, redis.Z{Score: float64(i + 1), Member: fmt.Sprintf("x:%d 1 %d 60000", i, heartbeat*half.Milliseconds())})
	}
	require.NoError(t, m.b.rdb.ZAdd(ctx, permitNames.Queue, dead...).Err())
	require.NoError(t, m.b.rdb.ZAdd(ctx, permitNames.Alive, dead...).Err())
	o := permitOp{verb: "beat", id: w.id, units: w.units, limit: m.limit, keep: m.keeps[0]}
	beat := []lua.PermitHeartbeat{{Keys: semaphoreKeys, Waiter: o.waiter(), Limit: o.limit}}
	r, err := lua.PermitHeartbeats(ctx, m.b.rdb, time.Duration(o.keep)*half, key.ClientPrefix, true, beat)
	require.NoError(t, err)
	if r[0].Status == lua.Queued {
		require.Zero(t, r[0].QueueState.Remaining, "there are more")
		m.bite.hit("more dead than one call drops")
	}
	m.do(t, o)
}

// endSomething is a lease or a heartbeat whose end has passed.
func (m *permitMachine) endSomething(t *rapid.T) {
	ctx := context.Background()
	over := serverTime(t, m.b.rdb).UnixMilli() - 2*half.Milliseconds()
	if rapid.Bool().Draw(t, "a waiter's") {
		if len(m.queue) == 0 {
			t.Skip("nobody waits")
		}
		w := rapid.SampledFrom(m.queue).Draw(t, "whose")
		member := permitOp{id: w.id, units: w.units}.member()
		require.NoError(t, m.b.rdb.ZAdd(ctx, permitNames.Alive, redis.Z{Score: float64(over), Member: member}).Err())
		m.alive[w.id] = m.now - 2
		return
	}
	if len(m.permits) == 0 {
		t.Skip("nobody has any")
	}
	m.endPermit(t, rapid.SampledFrom(slices.Sorted(maps.Keys(m.permits))).Draw(t, "whose"))
}

// forceFirst ends the first waiter while units are free, so that the call serves it.
func (m *permitMachine) forceFirst(t *rapid.T) {
	if len(m.queue) == 0 {
		t.Skip("nobody waits")
	}
	for _, id := range slices.Sorted(maps.Keys(m.permits)) {
		m.endPermit(t, id)
	}
	o := m.draw(t, "force")
	o.id, o.units = m.queue[0].id, m.queue[0].units
	m.do(t, o)
}

// endPermit is a permit whose end has passed.
func (m *permitMachine) endPermit(t *rapid.T, id string) {
	ctx := context.Background()
	over := serverTime(t, m.b.rdb).UnixMilli() - 2*half.Milliseconds()
	for level := range 4 {
		if m.permits[id].units&(1<<level) != 0 {
			z := redis.Z{Score: float64(int64(level)<<42 + over), Member: fmt.Sprintf("%s#%d", id, 1<<level)}
			require.NoError(t, m.b.rdb.ZAddXX(ctx, permitNames.Permits, z).Err())
		}
	}
	m.permits[id] = storedPermit{m.permits[id].units, m.now - 2}
}

// lose is an eviction, an operator, a FLUSHALL.
func (m *permitMachine) lose(t *rapid.T) {
	ctx := context.Background()
	switch rapid.SampledFrom([]string{"permits", "holders", "queue", "alive", "all"}).Draw(t, "what") {
	case "permits":
		require.NoError(t, m.b.rdb.Del(ctx, permitNames.Permits).Err())
		clear(m.permits)
		m.limit, m.declared, m.stamp = 0, 0, 0
	case "holders":
		require.NoError(t, m.b.rdb.Del(ctx, permitNames.Holders).Err())
		clear(m.described)
	case "queue":
		require.NoError(t, m.b.rdb.Del(ctx, permitNames.Queue, permitNames.Alive).Err())
		m.queue, m.grace = nil, 0
		clear(m.alive)
	case "alive":
		require.NoError(t, m.b.rdb.Del(ctx, permitNames.Alive).Err())
		m.grace = 0
		clear(m.alive)
	case "all":
		require.NoError(t, m.b.rdb.FlushAll(ctx).Err())
		m.permitModel = permitModel{
			now: m.now, tickets: m.tickets, bite: m.bite,
			permits: map[string]storedPermit{}, described: map[string]int{}, alive: map[string]int{},
		}
	}
}

func (m *permitMachine) do(t *rapid.T, o permitOp) {
	m.past = append(m.past, o)
	model := map[string]func(permitOp) string{
		"acquire": m.acquire, "beat": m.beat, "release": m.release, "renew": m.renew, "resize": m.resize, "force": m.force,
	}
	got := m.send(t, o)
	require.Equal(t, model[o.verb](o), got, "%+v", o)
	word, _, _ := strings.Cut(got, " ")
	switch {
	case strings.HasPrefix(got, "too many"):
		word = "too many"
	case got == "units 0":
		word = "nobody"
	case word == "units":
		word = "freed"
	}
	m.bite.hit(o.verb + " " + word)
}

func (m *permitMachine) send(t *rapid.T, o permitOp) string {
	ctx, rdb := context.Background(), m.b.rdb
	void := never
	if o.late {
		void = 1
	}
	lease, keep := time.Duration(o.lease)*half, time.Duration(o.keep)*half
	switch o.verb {
	case "acquire":
		r, err := lua.AcquirePermits(ctx, rdb, lua.AcquirePermitsParams{
			Keys: semaphoreKeys, Waiter: o.waiter(), Ticket: int64(o.ticket), Try: o.try,
			VoidAfter: void, Limit: o.limit, Retention: keep, ClientChannels: key.ClientPrefix,
		})
		require.NoError(t, err)
		switch r.Status {
		case lua.LimitDiffers:
			return fmt.Sprintf("differs %d %d", r.QueueState.Limit, r.QueueState.Declared)
		case lua.OverLimit:
			return fmt.Sprintf("too many %d", r.QueueState.Limit)
		case lua.Granted, lua.Void:
			return statusNames[r.Status]
		}
		return statusNames[r.Status] + showRoom(r.QueueState)
	case "beat":
		r, err := lua.PermitHeartbeats(ctx, rdb, keep, key.ClientPrefix, true, []lua.PermitHeartbeat{{Keys: semaphoreKeys, Waiter: o.waiter(), Limit: o.limit}})
		require.NoError(t, err)
		switch r[0].Status {
		case lua.Queued:
			return "queued" + showRoom(r[0].QueueState)
		case lua.OverLimit:
			return fmt.Sprintf("too many %d", r[0].QueueState.Limit)
		}
		return statusNames[r[0].Status]
	case "release":
		r, err := lua.ReleasePermits(ctx, rdb, lua.ReleasePermitsParams{Keys: semaphoreKeys, Waiter: o.waiter(), Retention: keep, ClientChannels: key.ClientPrefix})
		require.NoError(t, err)
		require.False(t, r.More)
		return statusNames[r.Status]
	case "renew":
		r, err := lua.RenewPermits(ctx, rdb, keep, []lua.PermitRenewal{{Permits: permitNames.Permits, Holders: permitNames.Holders, Acquisition: o.id, Units: o.units, Lease: lease}})
		require.NoError(t, err)
		return answerNames[r[0]]
	case "resize":
		r, err := lua.Resize(ctx, rdb, lua.ResizeParams{Keys: semaphoreKeys, Limit: o.units, Declared: o.limit, VoidAfter: void, Stamp: lua.Time(o.stamp), Retention: keep, ClientChannels: key.ClientPrefix})
		require.NoError(t, err)
		switch r.Status {
		case lua.Void:
			return "void"
		case lua.Superseded:
			return fmt.Sprintf("superseded %d", r.Stamp)
		}
		return fmt.Sprintf("freed %d", r.Before)
	}
	units, more, err := lua.ForceReleasePermits(ctx, rdb, semaphoreKeys, o.id, keep, key.ClientPrefix)
	require.NoError(t, err)
	require.False(t, more)
	return fmt.Sprintf("units %d", units)
}

func showRoom(r lua.QueueState) string {
	next := -1
	if r.Remaining >= 0 {
		next = int((r.Remaining + half/2) / half)
	}
	return fmt.Sprintf(" %d of %d, free %d of %d, next %d", r.Position, r.Length, r.Free, r.Limit, next)
}

// stored reads everything, in the form of the model's content; and checks that
// inspection says the same of what lives.
func (m *permitMachine) stored(t *rapid.T) string {
	ctx, rdb := context.Background(), m.b.rdb
	pipe := rdb.Pipeline()
	keys, permits := pipe.Keys(ctx, "*"), pipe.ZRangeWithScores(ctx, permitNames.Permits, 0, -1)
	queue, alive := pipe.ZRange(ctx, permitNames.Queue, 0, -1), pipe.ZRangeWithScores(ctx, permitNames.Alive, 0, -1)
	holders, now := pipe.HGetAll(ctx, permitNames.Holders), pipe.Time(ctx)
	_, err := pipe.Exec(ctx)
	require.NoError(t, err)
	for _, k := range keys.Val() {
		require.Contains(t, permitNames.Permits+permitNames.Holders+permitNames.Queue+permitNames.Alive, k)
	}
	inHalves := func(ms float64) int {
		d := time.Duration(ms-float64(now.Val().UnixMilli())) * time.Millisecond
		return int((d+half/2+1000*half)/half) - 1000
	}
	var limit, declared, stamp int
	found := map[string]storedPermit{}
	for _, z := range permits.Val() {
		id, weight, entry := strings.Cut(z.Member.(string), "#")
		switch {
		case id == "limit":
			limit = int(z.Score)
		case id == "declared":
			declared = int(z.Score)
		case id == "resized":
			stamp = int(-z.Score)
		default:
			require.True(t, entry)
			var units int
			_, err := fmt.Sscan(weight, &units)
			require.NoError(t, err)
			level := int64(z.Score) >> 42
			require.Equal(t, units, 1<<level)
			found[id] = storedPermit{found[id].units + units, inHalves(z.Score - float64(level<<42))}
		}
	}
	got := permitModel{permits: found, limit: limit, declared: declared, stamp: stamp, described: map[string]int{}, alive: map[string]int{}}
	for id, description := range holders.Val() {
		var since, units int
		var text string
		_, err := fmt.Sscan(description, &since, &units, &text)
		require.NoError(t, err)
		require.Equal(t, "me", text)
		got.described[id] = units
	}
	for _, member := range queue.Val() {
		var w storedWaiter
		_, err := fmt.Sscanf(member, "%s %d", &w.id, &w.units)
		require.NoError(t, err)
		got.queue = append(got.queue, w)
	}
	for _, z := range alive.Val() {
		id, _, _ := strings.Cut(z.Member.(string), " ")
		got.alive[id] = inHalves(z.Score)
	}
	grace, given := got.alive["grace"]
	delete(got.alive, "grace")
	shown := got.content()
	if given {
		shown += fmt.Sprintf("\nalive grace %+d", grace)
	}
	m.inspected(t)
	return strings.TrimPrefix(shown, "\n")
}

func (m *permitMachine) inspected(t *rapid.T) {
	r, err := lua.InspectPermits(context.Background(), m.b.rdb, semaphoreKeys, 100)
	require.NoError(t, err)
	require.Equal(t, []int{m.limit, m.declared, m.limit - m.free(), len(m.queue)}, []int{r.Limit, r.Declared, r.InUse, r.Waiting})
	live := maps.Clone(m.permits)
	maps.DeleteFunc(live, func(_ string, p storedPermit) bool { return p.end <= m.now })
	for _, h := range r.Held {
		require.Equal(t, live[h.Acquisition].units, h.Units)
		require.Equal(t, live[h.Acquisition].end-m.now, int((h.Remaining+half/2)/half))
		delete(live, h.Acquisition)
	}
	require.Empty(t, live)
}
