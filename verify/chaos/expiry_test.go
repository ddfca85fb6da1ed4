//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/workload"
)

// expiry is a fault that ends leases, or holds.
type expiry struct {
	fault
	stepped bool // the server's clock can be set
	back    bool // and is set back, so that leases that nobody renews last longer
	// loses: Redis forgets locks that are held. Then no library can exclude others until the holder
	// asks Redis again, and the target of the row does not promise it.
	loses    bool
	anywhere bool // as in row
	most     int  // bites to wait for, if one is not enough
	renewed  int  // number of holds to wait for that are lost although they are renewed
	strike   func(o *ordeal) (bites int)
}

const (
	expiryLease  = 400 * time.Millisecond
	grantsEach   = 1300 // for each of the eight rows in which Redis forgets nothing: 10,400
	leastGrants  = 50
	leastLost    = 5
	expiriesEach = 65 // for each of those rows: 520
	// forcedEach is the number of renewed leases that must end in each of the four rows that do
	// that best: 500. In the other rows, work that took too long may have ended a lease.
	forcedEach    = 125
	unaware       = 100 * time.Millisecond // for a reply in flight when the loss happened
	expiryClients = 6
	actorsEach    = 2
	// slow is about the longest time that a client waits for a reply: a third of the lease. It is
	// longer than the margin, so that trust counted from replies would be detected.
	slow           = expiryLease * 3 / 10
	expiryLimit    = 3 * time.Minute
	expiryNames    = 6
	keepsExclusion = "0 overlaps in ≥ 1,300 grants with ≥ 65 leases that ended under their holders"
	losesLocks     = keepsExclusion + ", but for holders whose lock was taken away, until they look"
)

func (p primitive) expiryRows() (rows []row) {
	for _, e := range expiries {
		target := keepsExclusion
		if e.loses {
			target = losesLocks
		}
		if e.renewed > 0 {
			target += fmt.Sprintf(", ≥ %d of them although they were renewed", e.renewed)
		}
		rows = append(rows, row{
			name: fmt.Sprintf("%s: trust, %s", p.name, e.name), target: target, anywhere: e.anywhere, alone: e.stepped,
			run: func(c *course) { c.expire(p, e) },
		})
	}
	return rows
}

var expiries = []expiry{
	{fault: fault{name: "kill -9, AOF", bites: "crashes", args: []string{"--appendonly", "yes", "--appendfsync", "always"}}, anywhere: true, renewed: forcedEach, strike: crashing},
	{fault: fault{name: "kill -9, no persistence", bites: "crashes"}, loses: true, strike: forgetting},
	{fault: fault{name: "server stopped", bites: "stops"}, renewed: forcedEach, strike: stopping},
	{fault: fault{name: "CLIENT PAUSE beyond the lease", bites: "pauses"}, anywhere: true, renewed: forcedEach, strike: freezing},
	{fault: fault{name: "half the clients in a black hole", bites: "commands and replies swallowed"}, strike: isolating},
	{fault: fault{name: "slow replies", bites: "replies delayed", rule: by(.5, scripts, redistest.DelayReply(slow))}},
	{fault: fault{name: "DEL by hand", bites: "locks deleted", gap: 3 * expiryLease}, most: 200, loses: true, strike: deleting},
	{fault: fault{name: "FLUSHALL", bites: "locks flushed"}, loses: true, strike: flushing},
	{fault: fault{name: "eviction", bites: "locks evicted", args: []string{"--maxmemory-policy", "volatile-lru"}}, loses: true, strike: evicting},
	{fault: fault{name: "clock forward", bites: "steps"}, stepped: true, loses: true, strike: forward},
	{fault: fault{name: "clock back", bites: "steps"}, stepped: true, back: true, strike: back},
	{fault: fault{name: "OOM", bites: "OOM"}, strike: starving},
	{fault: fault{name: "MISCONF", bites: "MISCONF", args: []string{"--save", "3600 1"}}, renewed: forcedEach, strike: refusingWrites},
}

// ordeal is one run of such a row.
type ordeal struct {
	*stand
	p     primitive
	e     expiry
	clock *clock
	names []string
	wrote map[string]*protected // by name

	mu     sync.Mutex
	losses []loss
}

// loss is a span in which Redis forgot a lock, or all of them.
type loss struct {
	name        string // empty: all
	from, until int64
}

// during does what makes Redis forget a lock. If Redis forgot it, during records when.
func (o *ordeal) during(name string, do func() (forgot bool)) {
	l := loss{name: name, from: history.Monotonic()}
	if !do() {
		return
	}
	l.until = history.Monotonic()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.losses = append(o.losses, l)
}

// expire lets clients contend for locks while leases end.
func (c *course) expire(p primitive, e expiry) {
	o := &ordeal{p: p, e: e}
	if e.stepped {
		o.stand, o.clock = c.steppedStand(e.args...)
	} else {
		o.stand = c.stand(e.args...)
	}
	o.wrote = map[string]*protected{}
	for i := range expiryNames {
		name := fmt.Sprintf("trust %d", i)
		o.names, o.wrote[name] = append(o.names, name), p.protected()
	}
	if e.strike != nil {
		e.blow, e.gap = func(*stand) int { return e.strike(o) }, max(e.gap, expiryLease)
	}
	actors, rec := o.actors(p)
	t := e.begin(o.stand)
	var over atomic.Bool
	var g sync.WaitGroup
	for _, mine := range actors {
		g.Go(func() {
			for !over.Load() {
				mine[rand.N(len(mine))].Run(context.Background(), turn(p))
			}
		})
	}
	bites := max(1, c.of(e.most, min(e.most, 20)))
	for end := time.Now().Add(expiryLimit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		ops := rec.History().Ops
		if grants(ops) >= c.of(grantsEach, leastGrants) && lost(ops) >= c.of(expiriesEach, leastLost) &&
			forced(ops) >= c.of(e.renewed, 0) && t.bitten() >= bites {
			break
		}
	}
	over.Store(true)
	g.Wait()
	c.bit(e.bites, t.bitten())
	t.end()
	o.judge(rec.History())
}

// actors returns a list for each worker that runs at the same time. Each list has an actor for each
// name. Every third client does not renew, so that leases also end by themselves. Half of the
// clients are behind the proxy, which causes some of the faults.
func (o *ordeal) actors(p primitive) (all [][]*workload.Actor, rec *history.Recorder) {
	rec = history.InMemory(history.Monotonic)
	options := []redlatch.Option{redlatch.WithLease(expiryLease), redlatch.WithPollInterval(poll), redlatch.WithHeartbeat(expiryLease)}
	if p.fenced() { // the server would never evict a semaphore that it keeps for ever
		options = append(options, redlatch.WithFenceRetention(0))
	}
	healthy := o.apart()
	for i := range expiryClients {
		s, mine := o.stand, options
		if i%2 == 0 {
			s = healthy
		}
		if !renews(i) {
			mine = append(mine[:len(mine):len(mine)], redlatch.WithoutRenewal())
		}
		locks := s.client(mine...)
		for range actorsEach {
			var actors []*workload.Actor
			for _, name := range o.names {
				actors = append(actors, p.actor(locks, &workload.Actor{Client: len(all), Name: name, Recorder: rec, Resources: o.wrote[name].resources()}))
			}
			all = append(all, actors)
		}
	}
	return all, rec
}

func renews(client int) bool { return client%3 != 2 }

// forced counts the losses of clients that renew. None of them is because work overran a lease.
func forced(ops []history.Op) int {
	return lost(slices.DeleteFunc(slices.Clone(ops), func(op history.Op) bool { return !renews(op.Client / actorsEach) }))
}

// judge looks for overlaps and checks the fences. The window of a holder whose lock Redis forgot
// counts until then. judge shows for how much longer such holders trusted their hold.
func (o *ordeal) judge(h history.History) {
	o.bit("holds lost", lost(h.Ops))
	unawares := 0
	var longest time.Duration
	for _, name := range o.names {
		part := h.ByName()[name]
		asked, given := called(part.Ops), o.given(part.Ops)
		for i := range part.Windows {
			w := &part.Windows[i]
			if longer := o.cut(w, asked[w.Acquisition], given[w.Acquisition]); longer > 0 {
				unawares, longest = unawares+1, max(longest, longer)
			}
		}
		o.never("overlaps", check.Overlaps(part.Windows, check.Limit(o.p.units())))
		o.never("histories not linearizable", o.p.whileLeasesEnd(o.expiring(part.Ops)))
		if o.p.fenced() {
			o.never("fences gone back", check.Fences(part.Ops))
			o.wrote[name].judge(o.course)
			o.count("updates lost without", int(o.wrote[name].unchecked.audit().Lost()))
		}
	}
	o.enough("grants", grants(h.Ops), o.of(grantsEach, leastGrants))
	o.enough("holds lost", lost(h.Ops), o.of(expiriesEach, leastLost))
	o.enough("holds lost that were renewed", forced(h.Ops), o.of(o.e.renewed, 0))
	// If trust was confirmed before the loss, it ends within a lease. If it lasts longer, a renewal
	// by someone else counted for the holder.
	tooLong := 0
	if longest > expiryLease {
		tooLong = 1
	}
	o.forbid("trusted on for longer than a lease", tooLong)
	if unawares > 0 {
		o.figure("%d holders trusted on after their lock was taken away, for at most %s", unawares, ms(longest))
	}
}

// expiring makes the end of a lease an operation. A clock that is set back again and again
// stretches the leases of lost holds, and nobody can say by how much. Requests that are refused
// meanwhile are not judged.
func (o *ordeal) expiring(ops []history.Op) []history.Op {
	if o.e.back {
		ops = check.Grants(ops)
	}
	return check.Expiring(ops, expiryLease)
}

// cut ends a window at the time when Redis forgot the lock, and returns how much of it came after.
// If the answer to a grant was in flight at that time, the grant may be from before or after, so it
// counts for nothing. If an Unlock found the lock, Redis never forgot it. Then the grant came
// later, or a script extended the lease while the clock was set.
func (o *ordeal) cut(w *history.Window, called int64, given bool) (longer time.Duration) {
	if given {
		return 0
	}
	for _, l := range o.losses {
		switch {
		case l.name != "" && l.name != w.Name:
		case w.From < l.from && w.Until > l.from:
			longer = max(longer, time.Duration(w.Until-l.until))
			w.Until = l.from
		case w.From >= l.from && called < l.until && w.From < l.until+unaware.Nanoseconds():
			w.Until = w.From
		}
	}
	return longer
}

// given returns the acquisitions that an Unlock released while Redis forgot nothing, so they were
// still there. An Unlock that is sent again finds nothing, and cannot know.
func (o *ordeal) given(ops []history.Op) map[string]bool {
	there := map[string]bool{}
	for _, op := range ops {
		if op.Kind == history.Release && op.Outcome == history.Done {
			there[op.Acquisition] = !slices.ContainsFunc(o.losses, func(l loss) bool {
				return op.Call < l.until && l.from < op.Return
			})
		}
	}
	return there
}

// called returns the times when the grants were requested, by acquisition.
func called(ops []history.Op) map[string]int64 {
	at := map[string]int64{}
	for _, op := range ops {
		if op.Kind == history.Acquire && op.Outcome == history.Done {
			at[op.Acquisition] = op.Call
		}
	}
	return at
}

func lost(ops []history.Op) (n int) {
	for _, op := range ops {
		if op.Outcome == history.Lost {
			n++
		}
	}
	return n
}

// turn returns a plan. It is mostly short, and sometimes longer than a lease.
func turn(p primitive) []workload.Step {
	d := rand.N(3 * time.Millisecond)
	switch r := rand.N(100); {
	case r < 15:
		d = expiryLease + rand.N(2*expiryLease)
	case r < 30:
		d = rand.N(expiryLease / 2)
	}
	return []workload.Step{{Verb: workload.Acquire, For: 4 * expiryLease, Units: p.some()}, {Verb: workload.Work, For: d}}
}

// around is a time near the lease. Holders survive if it is shorter, and do not if it is longer.
func around() time.Duration {
	return time.Duration(float64(expiryLease) * []float64{.3, .9, 1.1, 1.6}[rand.N(4)])
}

func crashing(o *ordeal) int {
	o.server.Kill()
	time.Sleep(around()) // leases run on meanwhile
	o.server.Restart()
	return 1
}

func forgetting(o *ordeal) int {
	o.during("", func() bool { return crashing(o) > 0 })
	return 1
}

func stopping(o *ordeal) int {
	o.server.Pause()
	time.Sleep(around())
	o.server.Resume()
	return 1
}

// freezing counts the pauses that a write really had to wait for. A pause does not end leases, but
// it ends trust.
func freezing(o *ordeal) int {
	d := around()
	o.operate("CLIENT", "PAUSE", d.Milliseconds(), []string{"WRITE", "ALL"}[rand.N(2)])
	began := time.Now()
	o.try("SET", "freezing", "x")
	if time.Since(began) < d/2 {
		return 0
	}
	return 1
}

// isolating leaves half of the clients without an answer.
func isolating(o *ordeal) int {
	before := o.proxy.Discarded()
	o.proxy.BlackHole(redistest.AllTraffic)
	time.Sleep(around())
	o.proxy.Heal()
	o.proxy.KillAll() // or a connection that lost something stays silent for ever
	return o.proxy.Discarded() - before
}

// deleting leaves time between its deletions. If a renewal by someone else counts for the holder,
// the holder trusts its hold for longer than a lease, and the row shows that.
func deleting(o *ordeal) (deleted int) {
	for _, name := range o.names {
		o.during(name, func() bool {
			n, _ := o.server.Control().Do(context.Background(), "DEL", o.p.key(name)).Int()
			deleted += n
			return n > 0
		})
	}
	return deleted
}

func flushing(o *ordeal) (n int) {
	var keys []string
	for _, name := range o.names {
		keys = append(keys, o.p.key(name))
	}
	o.during("", func() bool {
		n, _ = o.server.Control().Eval(context.Background(), `
			local n = redis.call('EXISTS', unpack(KEYS))
			redis.call('FLUSHALL')
			return n`, keys).Int()
		return true
	})
	return n
}

// evicting makes the server evict keys that have an expiry. These are the locks, because fences are
// kept for ever in these rows.
func evicting(o *ordeal) (evicted int) {
	o.during("", func() bool {
		before := o.counted("stats", "evicted_keys")
		o.operate("CONFIG", "SET", "maxmemory", 1)
		time.Sleep(5 * time.Millisecond)
		o.operate("CONFIG", "SET", "maxmemory", 0)
		evicted = o.counted("stats", "evicted_keys") - before
		return evicted > 0
	})
	return evicted
}

func forward(o *ordeal) int {
	return o.step(true, time.Duration(float64(expiryLease)*[]float64{1.2, 3}[rand.N(2)])) // all leases end
}

func back(o *ordeal) int {
	return o.step(false, -time.Duration(float64(expiryLease)*[]float64{.5, 1.2, 3}[rand.N(3)]))
}

// step sets the clock, and counts it if the clock of the server has jumped.
func (o *ordeal) step(loses bool, d time.Duration) int {
	time.Sleep(expiryLease)
	control := o.server.Control()
	before, began := control.Time(context.Background()).Val(), time.Now()
	if loses {
		o.during("", func() bool { o.set(d); return true })
	} else {
		o.set(d)
	}
	jump := control.Time(context.Background()).Val().Sub(before) - time.Since(began)
	if (jump - d).Abs() > expiryLease/8 {
		return 0
	}
	return 1
}

// set sets the clock while the server is busy with a script that uses no lock. If the clock is set
// in the middle of a script of the library, the script may find a lease that has not ended, and
// extend it.
func (o *ordeal) set(d time.Duration) {
	busy := make(chan struct{})
	go func() {
		defer close(busy)
		o.try("EVAL", "for i = 1, 5e6 do end", 0)
	}()
	time.Sleep(10 * time.Millisecond)
	o.clock.step(d)
	<-busy
}

func starving(o *ordeal) int {
	before := o.refusals("OOM")
	o.operate("CONFIG", "SET", "maxmemory", 1)
	time.Sleep(around())
	o.operate("CONFIG", "SET", "maxmemory", 0)
	return o.refusals("OOM") - before
}

// refusingWrites makes a save fail, so that the server refuses all writes.
func refusingWrites(o *ordeal) int {
	o.failSaves()
	before := o.refusals("MISCONF")
	o.operate("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")
	time.Sleep(around())
	o.operate("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
	return o.refusals("MISCONF") - before
}

// failSaves puts a directory in place of the file, once.
func (o *ordeal) failSaves() {
	inTheWay := filepath.Join(o.server.Dir(), "dump.rdb", "x")
	if _, err := os.Stat(inTheWay); err == nil {
		return
	}
	o.operate("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
	require.NoError(o, os.MkdirAll(inTheWay, 0o700))
	o.operate("BGSAVE")
	for {
		info, err := o.server.Control().Info(context.Background(), "persistence").Result()
		if err != nil || strings.Contains(info, "rdb_last_bgsave_status:err") {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
