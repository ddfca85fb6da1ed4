//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/display"
	"github.com/redlatch/redlatch/internal/oneline"
	"github.com/redlatch/redlatch/lockerr"
)

// runFlags are the flags of redlatch run.
type runFlags struct {
	nonblock, fair, quiet, verbose       bool
	wait, atLeast, maxHold, lease, grace durationFlag
	conflictCode                         int
	permits, limit                       int
	description                          string
}

const (
	defaultLease = 30 * time.Second
	defaultGrace = 5 * time.Second
)

const runLong = `Run a command while this process holds the lock NAME. The lease is renewed while the command runs. The
command gets REDLATCH_NAME, REDLATCH_ID, REDLATCH_FENCE and REDLATCH_LEASE in its environment.

If the lock is lost, the command and all processes of its group get SIGTERM, and after --grace SIGKILL.
Signals that redlatch gets go to that group too. ^C twice within two seconds kills the group.

Exit codes: that of the command; 128+n if signal n ended it; --conflict-exit-code if somebody else has the
lock; 64 wrong usage; 69 Redis is not available or refuses; 75 the lock was lost; 126 the command cannot run;
127 the command was not found.`

func newRunCommand(a *app) *cobra.Command {
	f := &runFlags{lease: durationFlag{value: defaultLease}, grace: durationFlag{value: defaultGrace}}
	cmd := &cobra.Command{
		Use:   "run NAME [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command under a lock",
		Long:  runLong,
		Example: `  redlatch run nightly-report -n -- /usr/local/bin/report --all
  redlatch run deploy -w 5m --fair -v -- make deploy
  redlatch run render --permits 1 --of 8 -- render frame-17`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return usageErrorf("need a name, then --, then a command: redlatch run NAME -- COMMAND; see redlatch run --help")
			}
			return a.run(cmd.Context(), f, args[0], args[1:])
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.nonblock, "nonblock", "n", false, "fail at once if somebody else has the lock")
	flags.VarP(&f.wait, "wait", "w", "fail if somebody else has the lock for this long, or if Redis does not answer (default: wait for ever for the lock, and --connect-timeout for Redis)")
	flags.IntVarP(&f.conflictCode, "conflict-exit-code", "E", exitNo, "exit `CODE` if somebody else has the lock")
	flags.BoolVar(&f.fair, "fair", false, "wait in order of arrival")
	flags.IntVar(&f.permits, "permits", 1, "take `N` permits of a semaphore; needs --of")
	flags.IntVar(&f.limit, "of", 0, "the semaphore has `LIMIT` permits; all programs must pass the same limit")
	flags.Var(&f.atLeast, "at-least", "keep the lock for this long at least, so that hosts with another clock do not run the same job again")
	flags.Var(&f.maxHold, "max-hold", "stop renewing the lock after this time; it is lost up to a lease later, and the command ends")
	flags.Var(&f.lease, "lease", "how long Redis keeps the lock if this host dies")
	flags.Var(&f.grace, "grace", "time between SIGTERM and SIGKILL if the lock is lost")
	flags.StringVar(&f.description, "description", "", "`TEXT` for people who look at the lock (default: host, pid and command)")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "say what redlatch waits for, and the place in the queue")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "say nothing if somebody else has the lock")
	return cmd
}

func (f *runFlags) check() error {
	const year = 365 * 24 * time.Hour
	switch {
	case f.conflictCode < 0 || f.conflictCode > 255:
		return usageErrorf("--conflict-exit-code must be from 0 to 255, not %d", f.conflictCode)
	case f.nonblock && f.wait.isSet:
		return usageErrorf("--nonblock and --wait exclude each other")
	case f.limit == 0 && f.permits != 1:
		return usageErrorf("--permits needs --of, the limit of the semaphore")
	case f.limit < 0 || f.permits < 1 || f.limit > 0 && f.permits > f.limit:
		return usageErrorf("--permits must be from 1 to the limit of --of")
	case f.fair && f.limit > 0:
		return usageErrorf("--fair is for mutexes; a semaphore is always fair")
	case f.atLeast.value > year:
		return usageErrorf("--at-least must be a year at most")
	}
	if f.wait.isSet && f.wait.value == 0 { // as flock(1)
		f.nonblock = true
	}
	return nil
}

// run is redlatch run.
func (a *app) run(ctx context.Context, f *runFlags, name string, command []string) error {
	if err := f.check(); err != nil {
		return err
	}
	if err := a.checkName(name); err != nil {
		return err
	}
	path, err := findCommand(command[0])
	if err != nil {
		return err
	}
	signals := catchSignals()
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	acquired := make(chan struct{})
	stopped := make(chan struct{})
	go func() { // until the lock is acquired, a signal ends the wait
		defer close(stopped)
		for {
			select {
			case s := <-signals:
				if endsWait(s) {
					stop(&exitError{exitSignal + signalNumber(s), nil})
					return
				}
			case <-acquired:
				return
			}
		}
	}()
	c, g, err := a.acquire(waiting, f, name, command)
	close(acquired)
	<-stopped
	if ended := context.Cause(waiting); ended != nil { // a signal, at whatever moment
		if g != nil {
			_ = g.release(context.Background(), 0)
		}
		err = ended
	}
	if c != nil {
		defer c.close()
	}
	if err != nil {
		return a.conflict(f, err)
	}
	r := &runner{app: a, flags: f, grant: g, name: name, signals: signals, since: time.Now()}
	return r.run(path, command)
}

// findCommand looks for the command as a shell does, before anybody waits for the lock.
func findCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", &exitError{exitNotFound, fmt.Errorf("%s: command not found", name)}
	}
	return "", &exitError{exitCannotRun, fmt.Errorf("%s: cannot run: %w", name, err)}
}

// conflict returns the error with the exit code for a lock that somebody else has.
func (a *app) conflict(f *runFlags, err error) error {
	var exit *exitError
	if errors.As(err, &exit) || !errors.Is(err, lockerr.ErrNotAcquired) {
		return err
	}
	if f.quiet {
		err = nil
	}
	return &exitError{f.conflictCode, err}
}

// grant is a hold of a mutex or a permit of a semaphore.
type grant interface {
	ID() string
	Lost() <-chan struct{}
	Context() context.Context
	release(ctx context.Context, after time.Duration) error
	fence() string
}

type holdGrant struct{ *redlatch.Hold }

func (g holdGrant) fence() string { return strconv.FormatInt(g.Fence(), 10) }

func (g holdGrant) release(ctx context.Context, after time.Duration) error {
	if after > 0 {
		return g.UnlockAfter(ctx, after)
	}
	return g.Unlock(ctx)
}

type permitGrant struct{ *redlatch.Permit }

func (g permitGrant) fence() string { return "" }

func (g permitGrant) release(ctx context.Context, after time.Duration) error {
	if after > 0 {
		return g.ReleaseAfter(ctx, after)
	}
	return g.Release(ctx)
}

// acquire connects, and waits for the lock. The caller closes the connection, if there is one.
func (a *app) acquire(ctx context.Context, f *runFlags, name string, command []string) (*connection, grant, error) {
	options := []redlatch.Option{redlatch.WithLease(f.lease.value), redlatch.WithDescription(describe(f.description, command))}
	if f.maxHold.isSet {
		options = append(options, redlatch.WithMaxHold(f.maxHold.value))
	}
	// Without --wait, a job of cron learns soon that Redis is down. A longer --wait is also for
	// Redis.
	c, err := a.connect(ctx, f.wait.value, options...)
	if err != nil {
		return nil, nil, err
	}
	var lockOptions []redlatch.LockOption
	if f.wait.value > 0 {
		lockOptions = append(lockOptions, redlatch.WithWaitTimeout(f.wait.value))
	}
	if f.verbose {
		lockOptions = append(lockOptions, redlatch.WithWaitCallback(a.sayPlace))
	}
	if f.limit > 0 {
		g, err := a.acquirePermit(ctx, f, c.locks.Semaphore(name, f.limit, lockOptions...))
		return c, g, err
	}
	var mu redlatch.Locker = c.locks.Mutex(name, lockOptions...)
	if f.fair {
		mu = c.locks.FairMutex(name, lockOptions...)
	}
	g, err := a.lock(ctx, f, mu)
	return c, g, err
}

func (a *app) acquirePermit(ctx context.Context, f *runFlags, s *redlatch.Semaphore) (grant, error) {
	acquire := s.Acquire
	if f.nonblock {
		acquire = s.TryAcquire
	}
	permit, err := acquire(ctx, f.permits)
	if err != nil {
		return nil, err
	}
	return permitGrant{permit}, nil
}

func (a *app) lock(ctx context.Context, f *runFlags, mu redlatch.Locker) (grant, error) {
	acquire := mu.Lock
	if f.nonblock {
		acquire = mu.TryLock
	}
	if f.verbose && !f.nonblock && !f.fair { // a plain mutex has no queue to show
		if info, err := mu.Inspect(ctx); err == nil && info.Held() {
			a.say("waits for %s, which %s has", quoted(mu.Name()), display.Holder(info.Holder, info.Description))
		}
	}
	hold, err := acquire(ctx)
	if err != nil {
		return nil, err
	}
	return holdGrant{hold}, nil
}

func (a *app) sayPlace(w redlatch.Waiting) {
	holder := ""
	if w.Holder != "" {
		holder = "; " + display.Holder(w.Holder, w.Description) + " has it"
	}
	a.say("waits for %s: place %d of %d%s", quoted(w.Name), w.Position, w.Length, holder)
}

// describe returns what others see of this process.
func describe(text string, command []string) string {
	if text != "" {
		return text
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	// Arguments may be secret, so only the name of the command is shown.
	text = oneline.OneLine(fmt.Sprintf("%s pid %d: %s", host, os.Getpid(), command[0]))
	text = strings.Map(func(r rune) rune {
		if oneline.IsInvisible(r) {
			return '?'
		}
		return r
	}, text)
	const most = 200
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// runner runs the command under a grant.
type runner struct {
	*app
	flags   *runFlags
	grant   grant
	name    string
	signals chan os.Signal
	since   time.Time

	child     *child
	lost      bool
	interrupt time.Time // the last ^C
}

func (r *runner) run(path string, command []string) error {
	if r.flags.verbose {
		r.say("has %s as %s", quoted(r.name), r.grant.ID())
	}
	var err error
	r.child, err = startChild(path, command, r.environment(), r.flags.grace.value)
	if err != nil {
		_ = r.release(0)
		return &exitError{exitCannotRun, fmt.Errorf("%s: cannot run: %w", command[0], err)}
	}
	status, err := r.await()
	r.child.finish()
	if r.lost {
		r.endGroup()
	}
	remaining := time.Until(r.since.Add(r.flags.atLeast.value)).Round(time.Millisecond)
	errRelease := r.release(max(remaining, 0))
	switch {
	case err != nil:
		return &exitError{exitCannotRun, fmt.Errorf("the end of the command is unknown: %w", err)}
	case r.lost || errors.Is(errRelease, lockerr.ErrLost):
		return &exitError{exitLost, r.lostMessage(errRelease)}
	case errRelease != nil:
		r.say("the command has ended, and the lock may stay until its lease ends: %v", errRelease)
	}
	r.child.dieOf(status)
	if status.Signaled() {
		return &exitError{exitSignal + int(status.Signal()), nil}
	}
	if code := status.ExitStatus(); code != 0 {
		return &exitError{code, nil}
	}
	return nil
}

// lostMessage says how the lock was lost, unless redlatch said so when it happened.
func (r *runner) lostMessage(err error) error {
	if r.lost {
		return nil
	}
	return fmt.Errorf("%w; the command ran on without the lock", err)
}

// environment is that of this process, with what the command may need to know of the lock.
func (r *runner) environment() (env []string) {
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "REDLATCH_FENCE=") { // of an outer redlatch run
			env = append(env, pair)
		}
	}
	env = append(env, "REDLATCH_NAME="+r.name, "REDLATCH_ID="+r.grant.ID(), "REDLATCH_LEASE="+r.flags.lease.value.String())
	if fence := r.grant.fence(); fence != "" {
		env = append(env, "REDLATCH_FENCE="+fence)
	}
	return env
}

// await returns when the command has ended.
func (r *runner) await() (syscall.WaitStatus, error) {
	lost := r.grant.Lost()
	var kill <-chan time.Time
	// A shell does not say that it has moved redlatch to the foreground.
	const pollForeground = 200 * time.Millisecond
	needsTerminal, poll := false, time.NewTicker(pollForeground)
	defer poll.Stop()
	for {
		select {
		case change := <-r.child.changes:
			if change.err != nil || !change.status.Stopped() {
				return change.status, change.err
			}
			if message := r.child.onStop(change.status.StopSignal()); message != "" {
				r.say("%s", message)
			}
			needsTerminal = r.child.needsTerminal
		case <-poll.C:
			if needsTerminal && r.child.resume() {
				needsTerminal = false
			}
		case s := <-r.signals:
			r.pass(s)
		case <-r.child.interrupts:
			r.onInterrupt()
		case <-lost:
			r.lost, lost = true, nil
			r.say("%v; the command gets SIGTERM", context.Cause(r.grant.Context()))
			r.child.terminate()
			kill = time.After(r.flags.grace.value)
		case <-kill:
			r.say("the command gets SIGKILL, because it still runs %s after SIGTERM", r.flags.grace.value)
			r.child.kill()
			kill = nil
		}
	}
}

// pass hands a signal to the command.
func (r *runner) pass(s os.Signal) {
	if s == syscall.SIGCONT && r.child.resume() {
		return
	}
	r.child.signal(s)
}

// onInterrupt kills the command if it gets a second ^C.
func (r *runner) onInterrupt() {
	if r.child.isTyped() {
		now := time.Now()
		if now.Sub(r.interrupt) < r.limits.interrupts {
			r.child.kill()
		}
		r.interrupt = now
	}
	r.interrupted()
}

// endGroup ends the processes that the command has left behind.
func (r *runner) endGroup() {
	r.child.terminate()
	if !r.child.awaitGroup(time.After(r.flags.grace.value)) {
		r.child.kill()
		r.child.awaitGroup(time.After(r.flags.grace.value))
	}
}

func (r *runner) release(after time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.limits.release)
	defer cancel()
	return r.grant.release(ctx, after)
}
