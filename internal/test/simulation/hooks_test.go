package simulation_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// hookFaults are what a hook that a user adds to a go-redis client may do to a command. The command
// runs before or after that, or not at all.
var hookFaults = []string{
	"hook fails first", "hook fails after", "hook panics first", "hook panics after", "hook exits first", "hook exits after",
}

// hookFault is a hook of one client that fails for some commands.
type hookFault struct {
	wireFault

	match func(cmd []string) bool

	mu                 sync.Mutex
	seen, taken, bites int
	disarmed           bool
}

func (f wireFault) isOfHook() bool { return strings.HasPrefix(f.action, "hook ") }

func (f *hookFault) Bites() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bites
}

func (f *hookFault) Disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disarmed = true
}

// Release does nothing, because a hook keeps no command for later.
func (*hookFault) Release() []any { return nil }

func (*hookFault) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *hookFault) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !f.takes(cmd) {
			return next(ctx, cmd)
		}
		return f.fail([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (f *hookFault) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !slices.ContainsFunc(cmds, f.takes) {
			return next(ctx, cmds)
		}
		return f.fail(cmds, func() error { return next(ctx, cmds) })
	}
}

// takes reports whether the hook fails for this command, and counts it if so.
func (f *hookFault) takes(cmd redis.Cmder) bool {
	var args []string
	for _, arg := range cmd.Args() {
		args = append(args, fmt.Sprint(arg))
	}
	if !f.match(args) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.disarmed || f.taken == f.times {
		return false
	}
	if f.seen++; f.seen <= f.skip {
		return false
	}
	f.taken++
	f.bites++
	return true
}

// fail does to the commands what was drawn.
func (f *hookFault) fail(cmds []redis.Cmder, run func() error) error {
	switch f.action {
	case "hook fails after":
		_ = run()
	case "hook panics first":
		panic("the hook panics")
	case "hook panics after":
		_ = run()
		panic("the hook panics")
	case "hook exits first":
		runtime.Goexit()
	case "hook exits after":
		_ = run()
		runtime.Goexit()
	}
	err := errsOfHook[f.skip%len(errsOfHook)]
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}

// errsOfHook are errors that a hook may return. They say nothing about the command.
var errsOfHook = []error{
	errOfHook{[]string{"the hook fails"}},
	fmt.Errorf("the hook gives up: %w", context.DeadlineExceeded),
	redis.Nil,
}

// errOfHook is of a type that cannot be compared.
type errOfHook struct{ lines []string }

func (e errOfHook) Error() string { return e.lines[0] }
