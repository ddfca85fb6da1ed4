package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/internal/catalog"
	"github.com/redlatch/redlatch/internal/display"
)

type adminFlags struct {
	expected  string
	yes, json bool
}

func newReleaseCommand(a *app) *cobra.Command {
	f := &adminFlags{}
	cmd := &cobra.Command{
		Use:   "release NAME --expected ID",
		Short: "Take a lock or a permit away from its holder",
		Long: "Take the mutex NAME, or a permit of the semaphore NAME, away from the holder ID, which redlatch show prints.\n\n" +
			"The next waiter gets it at once. Nobody stops the holder: it works on until its next renewal, by default up to ten seconds.\n" +
			"Nothing happens if somebody else has it by now. Exit code 1: ID does not have it.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.release(cmd.Context(), f, args[0]) },
	}
	cmd.Flags().StringVar(&f.expected, "expected", "", "`ID` of the holder or the permit")
	f.register(cmd)
	return cmd
}

func newRemoveWaiterCommand(a *app) *cobra.Command {
	f := &adminFlags{}
	cmd := &cobra.Command{
		Use:   "remove-waiter NAME ID",
		Short: "Remove a waiter from a queue",
		Long: "Remove the waiter ID, which redlatch show prints, from the queue of the fair mutex or the semaphore NAME. Its call fails.\n\n" +
			"Exit code 1: there is no such waiter.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.removeWaiter(cmd.Context(), f, args[0], args[1])
		},
	}
	f.register(cmd)
	return cmd
}

func newResizeCommand(a *app) *cobra.Command {
	f := &adminFlags{}
	cmd := &cobra.Command{
		Use:   "resize NAME LIMIT",
		Short: "Change the limit of a semaphore for all programs",
		Long: "Change the limit of the semaphore NAME for all programs, until the next resize. Programs go on to pass their own limit.\n\n" +
			"No permit is taken away. Exit code 1: nobody has used the semaphore lately, so it has no limit to change.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return a.resize(cmd.Context(), f, args[0], args[1]) },
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "write JSON")
	return cmd
}

func (f *adminFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&f.json, "json", false, "write JSON")
}

// confirm asks the user. Without a terminal nobody can answer, so the flag is needed.
func (a *app) confirm(f *adminFlags, question string) error {
	if f.yes {
		return nil
	}
	if !isTerminal(a.in) {
		return usageErrorf("nobody can answer, because the input is no terminal: pass --yes")
	}
	fmt.Fprintf(a.errOut, "%s [y/N] ", display.Safe(question))
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return &exitError{exitNo, errors.New("nothing was changed")}
}

// isTerminal reports whether an input or output of the app is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	return isTerminalFile(file)
}

func (a *app) release(ctx context.Context, f *adminFlags, name string) error {
	if err := a.checkName(name); err != nil {
		return err
	}
	if f.expected == "" {
		return usageErrorf("need --expected ID, so that nobody else loses the lock; redlatch show %s prints the ID", name)
	}
	if !f.yes && !isTerminal(a.in) {
		return a.confirm(f, "")
	}
	c, err := a.connect(ctx, 0)
	if err != nil {
		return err
	}
	defer c.close()
	names := catalog.New(c.rdb, c.locks)
	s := names.State(ctx, name, 0)
	if s.Err != nil {
		return s.Err
	}
	if s.Lock.Holder == f.expected {
		since := ""
		if held := display.AgeSince(s.Lock.Since, c.now(ctx)); held != "" {
			since = ", which has it for " + held
		}
		what := fmt.Sprintf("Take the mutex %s away from %s%s?", quoted(name), display.Holder(s.Lock.Holder, s.Lock.Description), since)
		if err := a.confirm(f, what); err != nil {
			return err
		}
	}
	for _, h := range s.Permits.Holders {
		if h.ID == f.expected {
			what := fmt.Sprintf("Take %d units of the semaphore %s away from %s?", h.Units, quoted(name), display.Holder(h.ID, h.Description))
			if err := a.confirm(f, what); err != nil {
				return err
			}
			break
		}
	}
	released, err := names.Release(ctx, name, f.expected) // Inspect does not show very many permits
	if err != nil {
		return err
	}
	now := "nobody has the mutex"
	if s.Lock.Held() {
		now = display.Holder(s.Lock.Holder, s.Lock.Description) + " has the mutex"
	}
	if s.Lock.Holder == f.expected {
		now = "it had the mutex until now"
	}
	return a.done(f, name, f.expected, released, "released", fmt.Sprintf("%s has neither the mutex nor a permit of %s; %s", f.expected, quoted(name), now))
}

// done reports whether there was something to do.
func (a *app) done(f *adminFlags, name, id string, changed bool, what, otherwise string) error {
	if f.json {
		err := writeJSON(a.out, map[string]any{"name": name, "id": id, what: changed})
		if err != nil || changed {
			return err
		}
		return &exitError{exitNo, nil}
	}
	if !changed {
		return &exitError{exitNo, errors.New(otherwise)}
	}
	_, err := fmt.Fprintf(a.out, "%s %s\n", what, display.Safe(id))
	return err
}

func (a *app) removeWaiter(ctx context.Context, f *adminFlags, name, id string) error {
	if err := a.checkName(name); err != nil {
		return err
	}
	if err := a.confirm(f, fmt.Sprintf("Remove the waiter %s from the queue of %s?", id, quoted(name))); err != nil {
		return err
	}
	c, err := a.connect(ctx, 0)
	if err != nil {
		return err
	}
	defer c.close()
	removed, err := catalog.New(c.rdb, c.locks).RemoveWaiter(ctx, name, id)
	if err != nil {
		return err
	}
	return a.done(f, name, id, removed, "removed", fmt.Sprintf("no waiter %s in the queue of %s; it may have got the lock", id, quoted(name)))
}

func (a *app) resize(ctx context.Context, f *adminFlags, name, text string) error {
	if err := a.checkName(name); err != nil {
		return err
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 {
		return usageErrorf("the limit must be a number from 1, not %s", quoted(text))
	}
	c, err := a.connect(ctx, 0)
	if err != nil {
		return err
	}
	defer c.close()
	before, err := catalog.New(c.rdb, c.locks).Resize(ctx, name, limit)
	if err != nil {
		return err
	}
	if before == 0 {
		return &exitError{exitNo, fmt.Errorf("nobody has used the semaphore %s lately; the next program sets its limit", quoted(name))}
	}
	if f.json {
		return writeJSON(a.out, map[string]any{"name": name, "limit": limit, "before": before})
	}
	_, err = fmt.Fprintf(a.out, "the limit is %d now; it was %d\n", limit, before)
	return err
}
