package rivals_test

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

var replyRows = []row{
	{"reply of an acquire cut once", func(c *course) { c.cutAcquire(1) }},
	{"replies of an acquire cut until it gives up", func(c *course) { c.cutAcquire(0) }},
	{"reply of a release cut once", (*course).cutRelease},
}

// waitLimit is the time limit of a call whose replies are cut.
const waitLimit = time.Second

// cutAcquire tries to take free locks. It cuts the reply of the command that has taken a lock, the
// given number of times in a row, or always for 0. The answer "somebody else has it" is wrong then.
// A ghost is a lock that is held although the caller did not get the answer that it has it.
func (c *course) cutAcquire(times int) {
	acquire, _ := c.commands()
	c.each(50, 10, func() {
		p, name := c.party(), redistest.Name(c)
		cut := p.proxy.Inject(redistest.Rule{
			Match: redistest.AllOf(acquire, redistest.Containing(name)), Times: times, Action: redistest.CutReply(),
		})
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		h, err := p.lock(name).TryLock(ctx)
		cut.Disarm()
		c.bit("replies cut", cut.Bites())
		if cut.Bites() > 0 {
			c.bit("calls hit", 1)
		}
		_, held := c.remaining(name)
		switch {
		case err == nil && held:
			c.count("notified rightly: it is theirs", 1)
			c.unlock(h)
			return
		case err == nil:
			c.count("notified that it is theirs, which it is not", 1)
			return
		}
		switch outcome, _ := c.lib.meaning(history.Try, err); outcome {
		case history.Refused:
			c.count("notified that others have it, which they do not", 1)
		case history.Nothing:
			c.count("notified that nothing happened", 1)
		default:
			c.count("notified of an error that leaves it open", 1)
		}
		c.ghost(name, held)
	})
}

// ghost waits for the end of a lock whose holder does not know that it has it.
func (c *course) ghost(name string, held bool) {
	if !held {
		c.count("ghosts", 0)
		return
	}
	c.count("ghosts", 1)
	after, freed := c.free(name)
	if !freed {
		c.count("of them for longer than a lease", 1)
	}
	c.took("ghost held", after)
}

// cutRelease releases locks, and cuts the reply once.
func (c *course) cutRelease() {
	_, release := c.commands()
	c.unless(c.lib.releases, "has no answer: cancel returns nothing")
	c.each(50, 10, func() {
		p, name := c.party(), redistest.Name(c)
		h := c.take(p, name)
		cut := p.proxy.Inject(redistest.Rule{
			Match: redistest.AllOf(release, redistest.Containing(name)), Times: 1, Action: redistest.CutReply(),
		})
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := h.Unlock(ctx)
		c.bit("replies cut", cut.Bites())
		_, held := c.remaining(name)
		outcome := history.Done
		if err != nil {
			outcome, _ = c.lib.meaning(history.Release, err)
		}
		switch {
		case !c.lib.releases:
		case outcome == history.Done && !held:
			c.count("notified rightly: released", 1)
		case outcome == history.Done:
			c.count("notified that it is released, which it is not", 1)
		case outcome == history.Lost && !held:
			c.count("notified that it was not theirs any more, though this very call released it", 1)
		default:
			c.count("notified of an error that leaves it open", 1)
		}
		c.ghost(name, held)
	})
}
