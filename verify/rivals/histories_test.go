package rivals_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/workload"
)

var historyRows = []row{
	{"histories under reply cuts and killed connections, lease 10 min", (*course).histories},
}

const (
	actors = 4
	turns  = 25 // for each
)

// histories lets clients contend for one lock each time, with leases longer than any history. It
// checks whether the answers are possible, and separately whether two clients ever had the lock.
func (c *course) histories() {
	c.size.lease = 10 * time.Minute
	c.unless(c.lib.releases, "a release is taken to have happened when cancel returns: it has no other answer")
	c.each(60, 3, c.history)
}

func (c *course) history() {
	rec, name := history.InMemory(history.Monotonic), redistest.Name(c)
	var work, chaos sync.WaitGroup
	var parties []*party
	var faults []*redistest.Fault
	for range actors {
		p := c.party()
		parties = append(parties, p)
		faults = append(faults, p.proxy.Inject(redistest.Rule{Action: redistest.CutReply(), Match: func(cmd []string) bool {
			return redistest.Containing(name)(cmd) && rand.N(25) == 0
		}}))
	}
	var over atomic.Bool
	chaos.Go(func() {
		for !over.Load() {
			time.Sleep(10*time.Millisecond + rand.N(40*time.Millisecond))
			c.bit("connections killed", parties[rand.N(actors)].proxy.Kill(redistest.AllTraffic))
		}
	})
	for i, p := range parties {
		a := workload.Actor{Client: i, Name: name, Lock: p.lock(name), Recorder: rec, Meaning: c.lib.meaning}
		work.Go(func() { a.Run(context.Background(), drawn()) })
	}
	work.Wait()
	over.Store(true)
	chaos.Wait()
	for _, f := range faults {
		f.Disarm()
		c.bit("replies cut", f.Bites())
	}
	c.judge(rec.History(), name)
}

// drawn is a plan without re-entries, because three of the four libraries have none.
func drawn() (plan []workload.Step) {
	for range turns {
		s := workload.Step{Verb: workload.Try}
		if rand.N(3) == 0 {
			s = workload.Step{Verb: workload.Acquire, For: 300 * time.Millisecond}
		}
		plan = append(plan, s, workload.Step{Verb: workload.Sleep, For: rand.N(3 * time.Millisecond)}, workload.Step{Verb: workload.UnlockAll})
	}
	return plan
}

func (c *course) judge(h history.History, name string) {
	c.count("operations", len(h.Ops))
	c.count("of them grants", grants(h.Ops))
	c.linearizable("histories linearizable", h.Ops)
	c.linearizable("if refusals and losses are not believed", disbelieved(h.Ops))
	c.count("with two holders at one time", one(check.Overlaps(h.Windows, check.Limit(1)) != nil))
	c.count("that end with a lock that nobody knows to hold", one(c.left(name)))
}

func (c *course) linearizable(what string, ops []history.Op) {
	err := check.Linearizable(ops, check.PlainMutex())
	c.count(what, one(err == nil))
	if err != nil && strings.Contains(err.Error(), "(unknown)") {
		c.count("undecided", 1)
	}
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

func grants(ops []history.Op) (n int) {
	for _, op := range ops {
		n += one(op.Kind != history.Release && op.Outcome == history.Done)
	}
	return n
}

// disbelieved keeps only grants and releases as they are. It tests mutual exclusion, and not
// whether other answers are true.
func disbelieved(ops []history.Op) (rest []history.Op) {
	for _, op := range ops {
		switch op.Outcome {
		case history.Refused:
			op.Outcome = history.Nothing
		case history.Lost:
			op.Outcome, op.Return = history.Unknown, history.Never
		}
		rest = append(rest, op)
	}
	return rest
}

// left reports whether the lock is still held when all clients are done, and background work has
// had three seconds.
func (c *course) left(name string) bool {
	for range 30 {
		if _, held := c.remaining(name); !held {
			return false
		}
		time.Sleep(100 * time.Millisecond)
	}
	return true
}
