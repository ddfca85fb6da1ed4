package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/internal/display"
	"github.com/redlatch/redlatch/internal/key"
)

type waitFlags struct {
	timeout durationFlag
	permits int
	json    bool
}

func newWaitCommand(a *app) *cobra.Command {
	f := &waitFlags{}
	cmd := &cobra.Command{
		Use:   "wait NAME",
		Short: "Wait until a lock is free, and do not take it",
		Long: "Wait until nobody has the mutex NAME. With --permits, wait until so many permits of the semaphore NAME are free, and nobody waits for them.\n\n" +
			"Somebody else may take it at once. To work under the lock, use redlatch run. Exit code 1: the time of --wait is over.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.wait(cmd.Context(), f, args[0]) },
	}
	cmd.Flags().VarP(&f.timeout, "wait", "w", "give up after this time (default: never)")
	cmd.Flags().IntVar(&f.permits, "permits", 0, "wait for `N` free permits of the semaphore")
	cmd.Flags().BoolVar(&f.json, "json", false, "write JSON")
	return cmd
}

var errStillHeld = errors.New("the time of --wait is over")

func (a *app) wait(ctx context.Context, f *waitFlags, name string) error {
	if err := a.checkName(name); err != nil {
		return err
	}
	if f.permits < 0 {
		return usageErrorf("--permits must be at least 1, not %d", f.permits)
	}
	c, err := a.connect(ctx, 0)
	if err != nil {
		return err
	}
	defer c.close()
	begin := time.Now()
	if f.timeout.isSet {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, max(f.timeout.value, time.Millisecond), errStillHeld)
		defer cancel()
	}
	free, by, err := c.awaitFree(ctx, f, name, a.prefix(), a.limits.connect)
	if err != nil {
		return err
	}
	if f.json {
		err = writeJSON(a.out, struct {
			Name        string  `json:"name"`
			Free        bool    `json:"free"`
			Holder      string  `json:"holder,omitempty"` // as in the output of show
			Description string  `json:"description,omitempty"`
			InUse       int     `json:"in_use,omitempty"`
			Waiting     int     `json:"waiting,omitempty"`
			Waited      float64 `json:"waited"`
		}{name, free, by.holder, by.description, by.inUse, by.waiting, time.Since(begin).Seconds()})
	}
	if !free {
		return errors.Join(err, &exitError{exitNo, fmt.Errorf("%s is not free: %s", quoted(name), by.text)})
	}
	return err
}

// awaitFree asks at a message of a release, at the end of the lease, and at least every two
// seconds.
func (c *connection) awaitFree(ctx context.Context, f *waitFlags, name, prefix string, attemptTime time.Duration) (free bool, by blocker, err error) {
	const poll = 2 * time.Second
	releases := c.rdb.Subscribe(context.WithoutCancel(ctx), key.ForMutex(prefix+name).Channel)
	defer releases.Close()
	messages := releases.Channel()
	for {
		// The first question comes at once, and has its time even if --wait is 0.
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTime)
		left, who, err := c.ask(asking, f, name)
		cancel()
		if err != nil || who.text == "" {
			return err == nil, blocker{}, err
		}
		if left <= 0 || left > poll {
			left = poll
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errStillHeld) {
				return false, who, nil
			}
			return false, who, ctx.Err()
		case <-messages:
		case <-time.After(left + 5*time.Millisecond):
		}
	}
}

// blocker is why a lock is not free.
type blocker struct {
	text                string // for people; empty: it is free
	holder, description string // of a mutex
	inUse, waiting      int    // of a semaphore
}

// ask returns who has the lock, and how long the lease lasts.
func (c *connection) ask(ctx context.Context, f *waitFlags, name string) (left time.Duration, who blocker, err error) {
	if f.permits == 0 {
		info, err := c.locks.Mutex(name).Inspect(ctx)
		if err != nil || !info.Held() {
			return 0, who, err
		}
		return info.Remaining, blocker{text: display.Holder(info.Holder, info.Description) + " has it", holder: info.Holder, description: info.Description}, nil
	}
	const anyLimit = 1
	info, err := c.locks.Semaphore(name, anyLimit).Inspect(ctx)
	const often = 500 * time.Millisecond // permits have no channel that everybody may listen to
	switch {
	case err != nil || info.Limit == 0 && info.InUse == 0 && info.Waiting == 0:
		return 0, who, err
	case f.permits > info.Limit:
		return 0, who, usageErrorf("the semaphore %s has %d permits only", quoted(name), info.Limit)
	case info.Waiting > 0 || info.InUse+f.permits > info.Limit:
		text := fmt.Sprintf("%d of %d permits are in use, and %d wait", info.InUse, info.Limit, info.Waiting)
		return often, blocker{text: text, inUse: info.InUse, waiting: info.Waiting}, nil
	}
	return 0, who, nil
}
