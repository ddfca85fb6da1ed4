package main

import (
	"context"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/catalog"
	"github.com/redlatch/redlatch/internal/display"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/lock"
)

const mostCompleted = 200

// typable are names that shells do not change.
var typable = regexp.MustCompile(`^[\pL\pN_.:/@%+={}-]+$`)

type completion = func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective)

// useCompletion makes shells complete names, ids and orders. Names come from Redis. If Redis does
// not answer at once, there are none, and nothing is said.
func (a *app) useCompletion(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "run", "show", "wait", "release", "resize":
			cmd.ValidArgsFunction = a.completeNames
		case "remove-waiter":
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
				if len(args) == 1 {
					return a.completeIDs(cmd, args[0], waiterIDs)
				}
				return a.completeNames(cmd, args, begin)
			}
		default:
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		complete := func(flag string, f completion) {
			if cmd.Flags().Lookup(flag) != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag, f) // the flag exists, and has none yet
			}
		}
		complete("sort", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return sortOrders, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		})
		complete("expected", func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeIDs(cmd, args[0], holderIDs)
		})
	}
}

// completing connects for one completion.
func (a *app) completing(cmd *cobra.Command, use func(ctx context.Context, c *connection)) {
	ctx, cancel := context.WithTimeout(cmd.Context(), a.limits.complete)
	defer cancel()
	a.conn.timeout.value = a.limits.complete
	c, err := a.connect(ctx, 0, redlatch.WithLogger(newLogger(discard{})))
	if err != nil {
		return
	}
	defer c.close()
	use(ctx, c)
}

func (a *app) completeNames(cmd *cobra.Command, args []string, begin string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		if cmd.Name() == "run" {
			return nil, cobra.ShellCompDirectiveDefault // the command
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a.completing(cmd, func(ctx context.Context, c *connection) {
		// Names that somebody holds come first. If there is no time for all names, some are better
		// than none.
		listing, _ := catalog.New(c.rdb, c.locks).List(ctx, catalog.Query{Pattern: key.EscapeGlob(begin) + "*", Limit: mostCompleted})
		for _, e := range listing.Entries {
			if typable.MatchString(e.Name) {
				names = append(names, e.Name)
			}
		}
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeIDs completes ids of one name, each with its description.
func (a *app) completeIDs(cmd *cobra.Command, name string, of func(*catalog.State) [][2]string) (ids []string, _ cobra.ShellCompDirective) {
	a.completing(cmd, func(ctx context.Context, c *connection) {
		s := catalog.New(c.rdb, c.locks).State(ctx, name, mostCompleted)
		for _, id := range of(&s) {
			if typable.MatchString(id[0]) {
				ids = append(ids, id[0]+"\t"+display.Short(id[1], 40))
			}
		}
	})
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func holderIDs(s *catalog.State) (ids [][2]string) {
	if s.Lock.Held() {
		ids = append(ids, [2]string{s.Lock.Holder, s.Lock.Description})
	}
	for i := range s.Permits.Holders {
		ids = append(ids, [2]string{s.Permits.Holders[i].ID, s.Permits.Holders[i].Description})
	}
	return ids
}

func waiterIDs(s *catalog.State) (ids [][2]string) {
	for _, w := range slices.Concat[[]lock.Waiter](s.Waiters, s.PermitWaiters) {
		ids = append(ids, [2]string{w.ID, w.Description})
	}
	return ids
}
