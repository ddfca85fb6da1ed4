package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/internal/catalog"
	"github.com/redlatch/redlatch/internal/display"
)

type listFlags struct {
	all, hashes, json bool
	limit             int
}

const listLong = `List the names that somebody holds or waits for. PATTERN is a glob as in redis-cli, such as 'orders:*'. Quote it.

Redis has no list of all locks, so redlatch looks for their fences, queues and permits with SCAN. A lock of Redisson's
RLock has no fence: --hashes finds it too. It looks at every hash of the database, which takes longer.`

func newListCommand(a *app) *cobra.Command {
	f := &listFlags{}
	cmd := &cobra.Command{
		Use:     "ls [PATTERN]",
		Aliases: []string{"list"},
		Short:   "List locks and semaphores, who has them and how many wait",
		Long:    listLong,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.list(cmd.Context(), f, append(args, "")[0])
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVarP(&f.all, "all", "a", false, "also names that were used lately, and that nobody holds or waits for")
	cmd.Flags().BoolVar(&f.json, "json", false, "write JSON")
	return cmd
}

func (f *listFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.hashes, "hashes", false, "also look at every hash of the database")
	cmd.Flags().IntVar(&f.limit, "limit", 10_000, "list `N` names at most; held and awaited ones come first")
}

// read returns the states that a list shows, and whether there may be more.
func (a *app) read(ctx context.Context, c *connection, f *listFlags, pattern string) (states []catalog.State, now time.Time, truncated bool, err error) {
	names := catalog.New(c.rdb, c.locks)
	listing, err := names.List(ctx, catalog.Query{Pattern: pattern, Busy: !f.all, Limit: f.limit, Hashes: f.hashes})
	if err != nil {
		return nil, now, false, err
	}
	const firstWaiter = 1 // has waited longest
	all := names.States(ctx, listing.Entries, firstWaiter)
	for i := range all {
		if f.all || !all[i].IsIdle() {
			states = append(states, all[i])
		}
	}
	return states, c.now(ctx), listing.Truncated, nil
}

// now returns the time of the server, by which redlatch measures all ages.
func (c *connection) now(ctx context.Context) time.Time {
	if now, err := c.rdb.Time(ctx).Result(); err == nil {
		return now
	}
	return time.Now()
}

func (a *app) list(ctx context.Context, f *listFlags, pattern string) error {
	if f.limit < 1 {
		return usageErrorf("--limit must be at least 1, not %d", f.limit)
	}
	c, err := a.connect(ctx, 0)
	if err != nil {
		return err
	}
	defer c.close()
	states, now, truncated, err := a.read(ctx, c, f, pattern)
	if err != nil {
		return err
	}
	if f.json {
		out := struct {
			Names     []nameJSON `json:"names"`
			Truncated bool       `json:"truncated"`
		}{Names: []nameJSON{}, Truncated: truncated}
		for i := range states {
			out.Names = append(out.Names, toJSON(&states[i], now))
		}
		return writeJSON(a.out, out)
	}
	if len(states) == 0 && !truncated {
		a.say("nobody holds or waits for a lock that ls can see; see redlatch ls --help for --all and --hashes")
		return nil
	}
	if err := table(a.out, listHeader, listRows(states, now)); err != nil {
		return err
	}
	a.warnOfCut(f, truncated)
	return nil
}

// warnOfCut comes after the table, so that it does not scroll away.
func (a *app) warnOfCut(f *listFlags, truncated bool) {
	if !truncated {
		return
	}
	left := "names that somebody holds or waits for"
	if f.all {
		left = "names"
	}
	a.say("WARNING: this list is cut at %d names, and Redis has more %s; use a PATTERN, or a larger --limit", f.limit, left)
}

var listHeader = []string{"NAME", "KIND", "HOLDER", "HELD", "LEASE", "WAITERS", "OLDEST"}

// listRows returns a row for each mutex, and one for each semaphore.
func listRows(states []catalog.State, now time.Time) (rows [][]string) {
	for i := range states {
		for _, r := range states[i].Rows() {
			rows = append(rows, listRow(&r, display.Short(r.Name, 40), now))
		}
	}
	return rows
}

// listRow returns the cells of a row under listHeader. name is what to show of its name.
func listRow(r *catalog.Row, name string, now time.Time) []string {
	if r.Err != nil {
		return []string{name, r.Kind.String(), "unknown: " + display.Short(r.Err.Error(), 60)}
	}
	holder, lease := "-", ""
	if r.Held {
		lease = display.LeaseLeft(r.Lease)
	}
	switch {
	case r.Kind == catalog.Semaphore:
		holder = fmt.Sprintf("%d of %d in use", r.InUse, r.Limit)
	case r.Held:
		holder = holderCell(r.Holder, r.Description, r.Kept)
	}
	waiting := strconv.Itoa(r.Waiting)
	if r.Listeners > 0 {
		waiting = "~" + strconv.Itoa(r.Listeners) // clients of a plain mutex, which has no queue
	}
	return []string{name, r.Kind.String(), holder, display.AgeSince(r.Since, now), lease, waiting, display.AgeSince(r.Oldest, now)}
}

func holderCell(id, description string, kept bool) string {
	text := description
	if text == "" {
		text = id
	}
	if kept {
		return "nobody: kept after " + display.Short(text, 30)
	}
	return display.Short(text, 40)
}
