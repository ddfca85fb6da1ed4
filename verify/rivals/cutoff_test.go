package rivals_test

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/workload"
)

var cutOffRows = []row{
	{"holder cut off past its lease: is it notified", (*course).cutOff},
	{"holder cut off past its lease: its late Unlock", (*course).lateUnlock},
	{"holder cut off past its lease: its late write", (*course).lateWrite},
}

// severed is a holder whose traffic fell into a black hole until another had the lock.
type severed struct {
	p        *party
	name     string
	hold     workload.Hold
	from     int64     // when the holder got the lock
	ends     time.Time // of the lease in the server
	next     workload.Hold
	granted  int64 // when next got the lock
	notified time.Time
}

// sever cuts a holder off at some instant between two renewals. It waits until the next holder has
// the lock, and gives the first holder another lease to notice.
func (c *course) sever() *severed {
	s := &severed{p: c.party(), name: redistest.Name(c)}
	other := c.party()
	s.hold = c.take(s.p, s.name)
	s.from = history.Monotonic()
	var g sync.WaitGroup
	g.Go(func() {
		s.next = c.take(other, s.name)
		s.granted = history.Monotonic()
	})
	time.Sleep(time.Duration(float64(c.size.lease) * (0.6 + 0.3*float64(s.from%100)/100)))
	s.p.proxy.BlackHole(redistest.AllTraffic)
	left, _ := c.remaining(s.name)
	s.ends = time.Now().Add(left)
	watch, stop := context.WithDeadline(context.Background(), s.ends.Add(c.size.lease))
	defer stop()
	select {
	case <-s.hold.Lost():
		s.notified = time.Now()
	case <-watch.Done():
	}
	g.Wait()
	<-watch.Done()
	c.bit("commands and replies swallowed", s.p.proxy.Discarded())
	c.bit("leases ended, others had the lock", 1)
	return s
}

// cutOff tests whether the holder is notified before its lease ends in Redis, and for how long two
// holders trusted their holds.
func (c *course) cutOff() {
	c.unless(c.lib.signal, "has no signal; notified means that a renewal by hand said that it is lost")
	c.unless(c.lib.window || c.lib.signal, "says nowhere until when a hold may be trusted")
	c.each(20, 10, func() {
		s := c.sever()
		end := s.hold.TrustedUntil()
		if !s.notified.IsZero() && s.notified.Before(end) {
			end = s.notified
		}
		if c.lib.window && !c.lib.signal {
			c.took("Until, which its user has to look at, ahead of the lease's end", s.ends.Sub(end))
		}
		switch {
		case s.notified.IsZero():
			c.count("not notified within a lease after the end", 1)
		case s.notified.After(s.ends):
			c.count("notified after the lease had ended", 1)
			c.took("late", s.notified.Sub(s.ends))
		default:
			c.count("notified before the lease ended", 1)
			c.took("ahead", s.ends.Sub(s.notified))
		}
		c.trusted(s, end)
		s.p.proxy.Heal()
	})
}

// trusted judges the windows of both, if the library has any.
func (c *course) trusted(s *severed, end time.Time) {
	if !c.lib.window && !c.lib.signal {
		return
	}
	now := history.Monotonic()
	until := min(now, now+time.Until(end).Nanoseconds())
	windows := []history.Window{
		{Name: s.name, Owner: "first", From: s.from, Until: until},
		{Name: s.name, Owner: "next", From: s.granted, Until: now},
	}
	if check.Overlaps(windows, check.Limit(1)) == nil {
		c.count("overlaps of trust", 0)
		return
	}
	c.count("overlaps of trust", 1)
	c.took("overlap", time.Duration(until-s.granted))
}

// lateUnlock tests whether the Unlock of a hold that has ended changes anything for the next
// holder, and what it returns.
func (c *course) lateUnlock() {
	c.unless(c.lib.releases, "has no answer: cancel returns nothing")
	c.each(20, 10, func() {
		s := c.sever()
		s.p.proxy.Heal()
		before := c.content(s.name)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err := s.hold.Unlock(ctx)
		if c.content(s.name) != before {
			c.count("next holders harmed", 1)
		} else {
			c.count("next holders harmed", 0)
		}
		if !c.lib.releases {
			return
		}
		switch outcome, _ := c.lib.meaning(history.Release, orNil(err)); {
		case err == nil:
			c.count("notified that it is released, which it was not", 1)
		case outcome == history.Lost:
			c.count("notified that it was lost", 1)
		default:
			c.count("notified of another error", 1)
		}
	})
}

// orNil replaces a nil error, because readers of errors do not accept it.
func orNil(err error) error {
	if err == nil {
		return context.Canceled
	}
	return err
}

// lateWrite lets the first holder write to the protected resource after the next holder has, like a
// process that was paused. It writes with the token of the library, if there is one.
func (c *course) lateWrite() {
	c.unless(c.lib.token, "has no token for the resource to check")
	c.each(20, 10, func() {
		s := c.sever()
		ctx := context.Background()
		resource := check.NewRemote(c.server.Control(), "resource of "+s.name, c.lib.token)
		write := func(h workload.Hold, value int64) error { return resource.Write(ctx, h.Fence(), value) }
		if err := write(s.next, 1); err != nil {
			c.Errorf("the holder's write: %v", err)
		}
		if err := write(s.hold, 2); err != nil {
			c.count("late writes refused", 1)
			c.count("let through", 0)
		} else {
			c.count("late writes refused", 0)
			c.count("let through", 1)
		}
		s.p.proxy.Heal()
	})
}
