//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/workload"
)

// historyRows: what clients are notified of while connections, the server and messages are in
// trouble. The leases are longer than any history. The rows are not part of the ordinary suite.
// Beside other tests, many calls have an unknown outcome, and the search through all possible
// histories takes too long.
func (p primitive) historyRows() (rows []row) {
	for _, f := range troubles {
		rows = append(rows, row{
			name:   fmt.Sprintf("%s: histories, %s", p.name, f.name),
			target: fmt.Sprintf("%d of %d × 4 clients × ≥ 200 operations: 0 illegal, 0 unknown", historiesEach, historiesEach*len(troubles)),
			run:    func(c *course) { c.histories(p, f) },
		})
	}
	return rows
}

// historiesEach is the number for each fault, and makes more than a thousand in all.
var historiesEach = 1000/len(troubles) + 1

// together is the number of histories that run at the same time. Each has a server of its own, so a
// fault that bites there has bitten that history.
const together = 3

// histories lets clients contend for locks, and judges each history. It ends when the fault has
// bitten in enough of them.
func (c *course) histories(p primitive, f fault) {
	want := c.of(historiesEach, together)
	var g sync.WaitGroup
	var met atomic.Int64
	for range together {
		s := c.stand(f.args...)
		g.Go(func() {
			made, bitten := meet((want+together-1)/together, func(n int) (bites int) { return s.history(p, f, historyName(n)) })
			c.count("histories", made)
			met.Add(int64(bitten))
		})
	}
	g.Wait()
	c.enough("of them that met it", int(met.Load()), want)
}

// meet makes histories, each with its number, until the fault has bitten in the wanted number of
// them. It gives up if the fault bites in one of twenty, or fewer.
func meet(want int, one func(n int) (bites int)) (made, bitten int) {
	for ; bitten < want && made < 20*want; made++ {
		if one(made) > 0 {
			bitten++
		}
	}
	return made, bitten
}

func historyName(n int) string { return fmt.Sprintf("history %d.", n) }

func (s *stand) clients(n int, options ...redlatch.Option) (clients []*redlatch.Client) {
	for range n {
		clients = append(clients, s.client(options...))
	}
	return clients
}

// history records what the actors see of one lock while the fault happens, and checks what is left
// of the lock afterwards. It makes new clients. A client whose subscriber was cut again and again
// pauses for seconds, and would not meet much of the fault after that.
func (s *stand) history(p primitive, f fault, name string) (bites int) {
	defer s.end()
	options := []redlatch.Option{redlatch.WithLease(10 * time.Minute), redlatch.WithPollInterval(poll)}
	if f.heartbeat > 0 {
		options = append(options, redlatch.WithHeartbeat(f.heartbeat))
	}
	clients := s.clients(4, options...)
	wrote := p.protected()
	t := f.begin(s)
	h, ended := contend(p, clients, name, wrote)
	t.end()
	s.bit(f.bites, t.bitten())
	if !ended { // its actors may have left holds
		s.forbid("not ended", 1)
		return t.bitten()
	}
	s.settled("locks", 0, func() int { return s.lockKeys(name) }) // the key of a hold that nobody knows of, which the search allows
	if !p.fenced() {
		s.never("not whole again", whole(s.aside(), name))
	}
	s.judge(p, h, wrote)
	return t.bitten()
}

// contend runs five or six actors and returns their history. The actors after the fourth share a
// client with another actor, so that local handoff happens too. ended reports whether the actors
// did enough operations in time.
func contend(p primitive, clients []*redlatch.Client, name string, wrote *protected) (h history.History, ended bool) {
	rec := history.InMemory(history.Monotonic)
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	var g sync.WaitGroup
	for i := range 5 + rand.N(2) {
		a := p.actor(clients[i%len(clients)], &workload.Actor{
			Client: i, Name: name, Recorder: rec, Rest: 100 * time.Millisecond, Resources: wrote.resources(),
		})
		g.Go(func() { a.Run(ctx, p.drawn(operationsEach)) })
	}
	g.Wait()
	h = rec.History()
	return h, ctx.Err() == nil && len(h.Ops)-with(history.Nothing, h.Ops) >= operationsEach
}

// judge checks a history in which nothing expires.
func (c *course) judge(p primitive, h history.History, wrote *protected) {
	c.count("operations", len(h.Ops))
	c.count("of them with an outcome nobody knows", with(history.Unknown, h.Ops))
	c.count("that said nothing", with(history.Nothing, h.Ops))
	c.never("not linearizable", p.linearizable(h.Ops))
	c.never("overlaps", check.Overlaps(h.Windows, check.Limit(p.units(), h.Ops...)))
	if p.fenced() {
		c.never("fences gone back", check.Fences(h.Ops))
		wrote.judge(c)
		c.forbid("updates lost without fence check", int(wrote.unchecked.audit().Lost())) // nothing expires
	}
}

const (
	operationsEach = 200 // steps of each client, and counted operations of all clients together
	// waitLimit is longer than any fault needs. After it, a lock that nobody can get is refused. If
	// nobody holds the lock, the search does not accept that. If a hold that nobody knows of is in
	// the way, the test finds its key at the end.
	waitLimit = 20 * time.Second
	longest   = time.Minute // of a history
)

func with(outcome history.Outcome, ops []history.Op) (n int) {
	for _, op := range ops {
		if op.Outcome == outcome {
			n++
		}
	}
	return n
}

// drawn returns a plan with the given number of operations. It acquires the lock, up to three
// times, and unlocks it, again and again. Some of the acquires wait, and others do not.
func (p primitive) drawn(operations int) (plan []workload.Step) {
	if !p.fenced() {
		return drawnPermits(operations)
	}
	short := func() time.Duration { return time.Millisecond + rand.N(20*time.Millisecond) }
	holds := 0 // if every acquire succeeds; a step without its hold does nothing
	for n := 0; n < operations; n++ {
		switch r := rand.N(100); {
		case holds > 0 && r < 55, holds == 3:
			verb := []workload.Verb{workload.Unlock, workload.UnlockFirst, workload.UnlockLate}[min(rand.N(12)/5, 2)]
			plan = append(plan, workload.Step{Verb: verb})
			holds--
		case r < 75:
			plan = append(plan, workload.Step{Verb: workload.Try})
			holds++
		case r < 90:
			plan = append(plan, workload.Step{Verb: workload.Acquire, For: short()})
			holds++
		case r < 98:
			plan = append(plan, workload.Step{Verb: workload.Cancel, For: short()})
			holds++
		default:
			plan = append(plan, workload.Step{Verb: workload.Acquire, For: waitLimit})
			holds++
		}
		if rand.N(10) == 0 {
			plan = append(plan, workload.Step{Verb: workload.Work, For: rand.N(2 * time.Millisecond)})
		}
	}
	return plan
}
