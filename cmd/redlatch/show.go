package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/internal/catalog"
	"github.com/redlatch/redlatch/internal/display"
	"github.com/redlatch/redlatch/lock"
)

type showFlags struct {
	json, alive bool
	waiters     int
}

func newShowCommand(a *app) *cobra.Command {
	f := &showFlags{}
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show who has a lock or a semaphore, and who waits",
		Long: "Show who has the lock and the semaphore NAME, since when, and who waits.\n\n" +
			"--alive waits until the holder of the mutex renews its lease, which shows that its process lives, or until a renewal is overdue: half of the lease has passed without one. Exit code 1: the holder does not renew, has released the lock, or there is none. A holder with redlatch.WithoutRenewal never renews.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.show(cmd.Context(), f, args[0]) },
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "write JSON")
	cmd.Flags().BoolVar(&f.alive, "alive", false, "find out whether the holder of the mutex lives")
	cmd.Flags().IntVar(&f.waiters, "waiters", 50, "show `N` waiters of each queue")
	return cmd
}

func (a *app) show(ctx context.Context, f *showFlags, name string) error {
	if err := a.checkName(name); err != nil {
		return err
	}
	c, err := a.connect(ctx, 0)
	if err != nil {
		return err
	}
	defer c.close()
	s := catalog.New(c.rdb, c.locks).State(ctx, name, max(f.waiters, 0))
	if s.Err != nil {
		return s.Err
	}
	alive := lifeSign{}
	if f.alive {
		if !s.Lock.Held() && s.Kinds.Has(catalog.Semaphore) {
			return usageErrorf("--alive is for mutexes, and %s is a semaphore", quoted(name))
		}
		if alive, err = c.watchLease(ctx, &s); err != nil {
			return err
		}
		// Meanwhile somebody else may have the lock.
		if s = catalog.New(c.rdb, c.locks).State(ctx, name, max(f.waiters, 0)); s.Err != nil {
			return s.Err
		}
	}
	now := c.now(ctx)
	if f.json {
		out := toJSON(&s, now)
		if f.alive && out.Mutex == nil {
			out.Mutex = &mutexJSON{}
		}
		if out.Mutex != nil {
			out.Mutex.Alive = alive.text
		}
		err = writeJSON(a.out, out)
	} else {
		err = writeState(a.out, &s, alive.text, now)
	}
	if err == nil && f.alive && !alive.isAlive {
		err = &exitError{exitNo, nil}
	}
	return err
}

// lifeSign says whether a holder lives.
type lifeSign struct {
	text    string // empty: nothing is known yet
	isAlive bool
}

// leaseWatch compares what readings say of the lease of one holder. Redis does not know how long
// the lease was at its beginning.
type leaseWatch struct {
	holder  string
	from    time.Duration // what was left in the first reading, or after the last renewal
	left    time.Duration // what was left in the last reading
	endsNot time.Time     // the lease of the last reading did not end before this, unless it was renewed
}

// isOverdue reports whether the holder should have renewed the lease. By default it does so when a
// third has passed. So at least two thirds were left in the first reading, and the renewal comes
// before half of what was left has passed.
func (w *leaseWatch) isOverdue() bool { return w.left <= w.from/2 }

// observe takes a reading that was asked for at one time, and answered at another.
func (w *leaseWatch) observe(info *lock.Info, asked, answered time.Time) (v lifeSign) {
	switch {
	case w.holder == "" && !info.Held(), info.IsKept() && w.holder == "":
		return lifeSign{text: "no: nobody holds it"}
	case w.holder == "":
		w.holder, w.from = info.Holder, info.Remaining
	case info.Holder != w.holder && answered.Before(w.endsNot):
		return lifeSign{text: "no: " + display.Safe(w.holder) + " has released the lock, or somebody took it away"}
	case info.Holder != w.holder:
		return lifeSign{text: "no: the lease of " + display.Safe(w.holder) + " ran out"}
	case info.Remaining > w.left:
		return lifeSign{"yes: it has just renewed its lease", true}
	}
	if info.Remaining < 0 {
		return lifeSign{text: "unknown: the lease has no end"}
	}
	w.left, w.endsNot = info.Remaining, asked.Add(info.Remaining)
	if w.isOverdue() {
		v.text = overdueText(w.from-w.left, w.left)
	}
	return v
}

func overdueText(without, left time.Duration) string {
	return fmt.Sprintf("no renewal for %s: the holder has crashed, is paused or is cut off from Redis; the lease ends in %s", display.Age(without), display.Age(left))
}

// watchLease waits until the holder renews its lease, should have done so, or is another one.
func (c *connection) watchLease(ctx context.Context, s *catalog.State) (lifeSign, error) {
	const poll = 200 * time.Millisecond
	w := leaseWatch{}
	for asked := time.Now(); ; asked = time.Now() {
		info, err := c.locks.Mutex(s.Name).Inspect(ctx)
		if err != nil {
			return lifeSign{}, err
		}
		if v := w.observe(&info, asked, time.Now()); v.text != "" {
			return v, nil
		}
		select {
		case <-ctx.Done():
			return lifeSign{}, ctx.Err()
		case <-time.After(poll):
		}
	}
}

func writeState(w io.Writer, s *catalog.State, alive string, now time.Time) error {
	fmt.Fprintf(w, "name: %s\n", display.Safe(s.Name))
	if s.Kinds == 0 {
		if alive != "" {
			fmt.Fprintf(w, "alive: %s\n", alive)
		}
		_, err := fmt.Fprintln(w, "nobody has used this name lately, so it is free")
		return err
	}
	if s.Kinds.Has(catalog.Mutex) {
		if err := writeMutex(w, s, alive, now); err != nil {
			return err
		}
	}
	if s.Kinds.Has(catalog.Semaphore) {
		return writeSemaphore(w, s, now)
	}
	return nil
}

func writeMutex(w io.Writer, s *catalog.State, alive string, now time.Time) error {
	info := &s.Lock
	switch {
	case !info.Held():
		fmt.Fprintln(w, "\nmutex: free")
	case info.IsKept():
		fmt.Fprintf(w, "\nmutex: nobody holds it, and Redis keeps it\n  id:          %s\n  last holder: %s\n", display.Safe(info.Holder), display.Safe(info.Description))
	default:
		fmt.Fprintf(w, "\nmutex: held\n  holder:      %s\n  description: %s\n  holds:       %d\n", display.Safe(info.Holder), display.Safe(info.Description), info.Holds)
	}
	if info.Held() {
		if !info.Since.IsZero() {
			fmt.Fprintf(w, "  since:       %s, for %s\n", info.Since.Local().Format(time.RFC3339), display.AgeSince(info.Since, now))
		}
		fmt.Fprintf(w, "  lease left:  %s\n", display.LeaseLeft(info.Remaining))
	}
	if alive != "" {
		fmt.Fprintf(w, "  alive:       %s\n", alive)
	}
	if info.Fence != 0 {
		fmt.Fprintf(w, "  last fence:  %d\n", info.Fence)
	}
	if s.Subscribers >= 0 {
		fmt.Fprintf(w, "  listeners:   %d clients listen for a release\n", s.Subscribers)
	}
	return writeQueue(w, s.Waiters, s.Waiting, false, now)
}

func writeSemaphore(w io.Writer, s *catalog.State, now time.Time) error {
	p := &s.Permits
	fmt.Fprintf(w, "\nsemaphore: %d of %d in use", p.InUse, p.Limit)
	if p.Declared != p.Limit && p.Declared != 0 {
		fmt.Fprintf(w, "; programs pass %d", p.Declared)
	}
	fmt.Fprintln(w)
	var rows [][]string
	for i := range p.Holders {
		h := &p.Holders[i]
		description := display.Safe(h.Description)
		if h.IsKept() {
			description = "nobody: kept after " + description
		}
		rows = append(rows, []string{"  " + display.Safe(h.ID), strconv.Itoa(h.Units), display.AgeSince(h.Since, now), display.Age(h.Remaining), description})
	}
	if len(rows) > 0 {
		if err := table(w, []string{"  PERMIT", "UNITS", "HELD", "LEASE", "DESCRIPTION"}, rows); err != nil {
			return err
		}
	}
	return writeQueue(w, s.PermitWaiters, p.Waiting, true, now)
}

func writeQueue(w io.Writer, waiters []lock.Waiter, length int, units bool, now time.Time) error {
	if length == 0 {
		return nil
	}
	fmt.Fprintf(w, "  queue:       %d wait\n", length)
	header := []string{"  #", "WAITER", "WAITS", "HEARTBEAT", "DESCRIPTION"}
	if units {
		header[1] = "WAITER\tUNITS"
	}
	var rows [][]string
	for i, waiter := range waiters {
		heartbeat := display.Age(waiter.HeartbeatLeft) + " left"
		if waiter.HeartbeatLeft <= 0 {
			heartbeat = "crashed"
		}
		id := display.Safe(waiter.ID)
		if units {
			id += "\t" + strconv.Itoa(waiter.Units)
		}
		rows = append(rows, []string{"  " + strconv.Itoa(i+1), id, display.AgeSince(waiter.Since, now), heartbeat, display.Safe(waiter.Description)})
	}
	if err := table(w, header, rows); err != nil {
		return err
	}
	if more := length - len(waiters); more > 0 {
		fmt.Fprintf(w, "  and %d more; --waiters shows them\n", more)
	}
	return nil
}
