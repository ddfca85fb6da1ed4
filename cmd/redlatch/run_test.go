//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// forever is a command that ends only by a signal. It says when it runs.
const forever = "echo runs; while :; do sleep 0.05; done"

func TestRunReturnsTheExitCode(t *testing.T) {
	t.Parallel()
	url := redistest.Shared(t).URL()
	notExecutable := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(notExecutable, nil, 0o600))
	noFormat := filepath.Join(t.TempDir(), "noformat")
	require.NoError(t, os.WriteFile(noFormat, []byte("\x00"), 0o700))
	for _, c := range []struct {
		command []string
		code    int
		message string
	}{
		{[]string{"true"}, 0, ""},
		{[]string{"false"}, 1, ""},
		{[]string{"sh", "-c", "exit 64"}, 64, ""},
		{[]string{"sh", "-c", "exit 255"}, 255, ""},
		{[]string{"sh", "-c", "kill -KILL $$"}, 137, ""},
		{[]string{"sh", "-c", "kill -TERM $$"}, 143, ""},
		{[]string{"sh", "-c", "kill -INT $$"}, 130, ""},
		{[]string{"no-such-command"}, 127, "redlatch: no-such-command: command not found\n"},
		{[]string{"/no/such/command"}, 127, "redlatch: /no/such/command: command not found\n"},
		{[]string{notExecutable}, 126, "cannot run"},
		{[]string{"/"}, 126, "cannot run"},
		{[]string{noFormat}, 126, "exec format error"},
	} {
		t.Run(strings.Join(c.command, " "), func(t *testing.T) {
			name := redistest.Name(t)
			got := run(t, url, append([]string{"run", name, "--"}, c.command...)...)
			require.Equal(t, c.code, got.code, got.err)
			if c.message == "" {
				require.Empty(t, got.err)
			}
			require.Contains(t, got.err, c.message)
			require.Equal(t, 0, run(t, url, "run", "-n", name, "--", "true").code, "the lock is free again")
		})
	}
}

func TestRunRefusesWrongUsageBeforeItAsksRedis(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{}, {"nonsense"}, {"run"}, {"run", "x"}, {"run", "x", "--"}, {"run", "x", "y", "--", "true"}, {"run", "--", "true"}, {"run", "x", "true"},
		{"run", "", "--", "true"}, {"run", "a\nb", "--", "true"}, {"run", "a{", "--", "true"}, {"run", "x", "-n", "-w", "1s", "--", "true"},
		{"run", "x", "-w", "soon", "--", "true"}, {"run", "x", "-w", "-1s", "--", "true"}, {"run", "x", "-E", "256", "--", "true"},
		{"run", "x", "-E", "-1", "--", "true"}, {"run", "x", "--permits", "2", "--", "true"}, {"run", "x", "--permits", "3", "--of", "2", "--", "true"},
		{"run", "x", "--of", "2", "--fair", "--", "true"}, {"run", "x", "--permits", "0", "--of", "2", "--", "true"}, {"run", "x", "--of", "-2", "--", "true"},
		{"run", "x", "--nonsense", "--", "true"}, {"run", "x", "--lease", "1ms", "--", "true"}, {"run", "x", "--description", "a\nb", "--", "true"},
		{"run", "x", "--prefix", "a{", "--", "true"}, {"run", "x", "--at-least", "10000h", "--", "true"},
		{"run", "x", "--redis", "http://127.0.0.1", "--", "true"}, {"run", "x", "--redis", "127.0.0.1:6379", "--", "true"},
	} {
		got := run(t, "redis://127.0.0.1:1", args...)
		require.Equal(t, 64, got.code, "%q: %s", args, got.err)
		if len(args) > 0 {
			require.Regexp(t, "^redlatch: [^\n]+\n$", got.err, "%q", args)
		}
	}
}

func TestRunGivesTheLockToItsCommand(t *testing.T) {
	t.Parallel()
	url := redistest.Shared(t).URL()
	name := redistest.Name(t)
	script := `echo "$REDLATCH_NAME|$REDLATCH_FENCE|$REDLATCH_ID|$REDLATCH_LEASE"`
	env := []string{"REDIS_URL=" + url, "REDLATCH_FENCE=of an outer one"}
	got := runIn(t, env, "run", "--prefix", "svc:", name, "--lease", "20s", "--", "sh", "-c", script)
	require.Equal(t, 0, got.code, got.err)
	require.Regexp(t, `^`+regexp.QuoteMeta(name)+`\|[0-9]{16}\|[0-9a-f-]{36}:[0-9]+\|20s\n$`, got.out)

	got = runIn(t, env, "run", name, "--permits", "2", "--of", "3", "--", "sh", "-c", script)
	require.Equal(t, 0, got.code, got.err)
	require.Regexp(t, `\|\|[0-9a-f-]{36}:[0-9]+\|30s\n$`, got.out, "a permit has no fence")
}

func TestRunExcludesOthers(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	locks := newLocks(t, server.Client(t))
	for kind, c := range map[string]struct {
		flags []string
		state func(name string) (holder, description string)
	}{
		"mutex": {nil, func(name string) (string, string) {
			info, err := locks.Mutex("svc:" + name).Inspect(t.Context())
			require.NoError(t, err)
			return info.Holder, info.Description
		}},
		"fair mutex": {[]string{"--fair"}, func(name string) (string, string) {
			info, err := locks.Mutex("svc:" + name).Inspect(t.Context())
			require.NoError(t, err)
			return info.Holder, info.Description
		}},
		"semaphore": {[]string{"--of", "3", "--permits", "2"}, func(name string) (string, string) {
			info, err := locks.Semaphore("svc:"+name, 3).Inspect(t.Context())
			require.NoError(t, err)
			require.Equal(t, 2, info.InUse)
			return info.Holders[0].ID, info.Holders[0].Description
		}},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			name := redistest.Name(t)
			args := func(more ...string) []string {
				return append(append([]string{"run", "--prefix", "svc:", name}, c.flags...), more...)
			}
			first := start(t, server.URL(), args("--description", "the first", "--", "sh", "-c", forever)...)
			first.awaitOut("runs")
			holder, description := c.state(name)
			require.NotEmpty(t, holder)
			require.Equal(t, "the first", description)

			got := run(t, server.URL(), args("-n", "--", "echo", "ran")...)
			require.Equal(t, 1, got.code)
			require.Empty(t, got.out)
			require.Contains(t, got.err, "not acquired")
			require.Equal(t, result{7, "", ""}, run(t, server.URL(), args("-q", "-w", "2s", "-E", "7", "--", "echo", "ran")...))
			require.Equal(t, result{0, "", ""}, run(t, server.URL(), args("-q", "-w", "0", "-E", "0", "--", "echo", "ran")...))

			second := start(t, server.URL(), args("-v", "--", "echo", "ran")...)
			if kind == "semaphore" {
				second.awaitErr("place 1 of 1")
			} else {
				second.awaitErr("the first")
			}
			require.NoError(t, first.cmd.Process.Signal(syscall.SIGTERM))
			require.Equal(t, 143, first.wait())
			require.Equal(t, 0, second.wait())
			require.Equal(t, "ran\n", second.out.String())
		})
	}
}

func TestRunEndsItsWaitWithASignal(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	locks := newLocks(t, server.Client(t))
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		name := redistest.Name(t)
		hold, err := locks.FairMutex(name).Lock(t.Context())
		require.NoError(t, err)
		p := start(t, server.URL(), "run", "--fair", "-v", name, "--", "echo", "ran")
		p.awaitErr("place 1 of 1")
		require.NoError(t, p.cmd.Process.Signal(s))
		require.Equal(t, 128+int(s), p.wait())
		require.Empty(t, p.out.String())
		_, length, err := locks.FairMutex(name).Queue(t.Context(), 0, 0)
		require.NoError(t, err)
		require.Zero(t, length, "its place is given up")
		require.NoError(t, hold.Unlock(t.Context()))
	}
}

func TestRunHandsSignalsToTheWholeGroup(t *testing.T) {
	t.Parallel()
	url := redistest.Shared(t).URL()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGINT} {
		script := fmt.Sprintf(`trap 'echo parent; exit 5' %d; (trap 'echo inner; exit' %d; echo runs; while :; do sleep 0.05; done) & while :; do wait; done`, s, s)
		if s == syscall.SIGINT || s == syscall.SIGQUIT { // shells make background jobs ignore these
			script = fmt.Sprintf(`trap 'echo parent inner; exit 5' %d; %s`, s, forever)
		}
		p := start(t, url, "run", redistest.Name(t), "--", "sh", "-c", script)
		p.awaitOut("runs")
		require.NoError(t, p.cmd.Process.Signal(s))
		require.Equal(t, 5, p.wait(), "%v", s)
		p.awaitOut("parent")
		p.awaitOut("inner")
	}
}

func TestTwoInterruptsKill(t *testing.T) {
	t.Parallel()
	url := redistest.Shared(t).URL()
	name := redistest.Name(t)
	p := command(t, []string{"REDIS_URL=" + url, interruptsEnv + "=1h"}, "run", name, "--", "sh", "-c", "trap 'echo interrupted' INT; "+forever).start()
	p.awaitOut("runs")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	p.awaitOut("interrupted")
	p.awaitErr(noticedInterrupt)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	require.Equal(t, 137, p.wait())
	require.Equal(t, 0, run(t, url, "run", "-n", name, "--", "true").code, "the lock is free again")
}

func TestALostLockEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	rdb := server.Client(t)
	locks := newLocks(t, rdb)
	const ends = "trap 'echo ends; exit 0' TERM; " + forever
	const stubbornChild = `(trap '' TERM; echo inner; while :; do sleep 0.05; done) & `
	for loss, lose := range map[string]func(t *testing.T, name string){
		"DEL": func(t *testing.T, name string) { require.NoError(t, rdb.Del(t.Context(), name).Err()) },
		"ForceRelease": func(t *testing.T, name string) {
			_, err := locks.Mutex(name).ForceRelease(t.Context(), "")
			require.NoError(t, err)
		},
	} {
		for kind, c := range map[string]struct{ grace, script string }{
			"the command ends":            {"20s", ends}, // it has this time, however busy the machine is
			"the command is stopped":      {"20s", ends},
			"the command ignores SIGTERM": {"300ms", `trap '' TERM; ` + stubbornChild + forever},
			"a child ignores SIGTERM":     {"300ms", stubbornChild + forever},
		} {
			t.Run(loss+", "+kind, func(t *testing.T) {
				t.Parallel()
				name := redistest.Name(t)
				p := command(t, []string{"REDIS_URL=" + server.URL(), renewEnv + "=50ms"},
					"run", "--grace", c.grace, name, "--", "sh", "-c", "echo pid $$; "+c.script).start()
				p.awaitOut("runs") // the traps are set
				if strings.Contains(c.script, "echo inner") {
					p.awaitOut("inner")
				}
				pid, group := commandOf(t, p)
				if kind == "the command is stopped" {
					require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
				}
				lose(t, name)
				require.Equal(t, 75, p.wait(), p.err.String())
				require.Contains(t, p.err.String(), "SIGTERM")
				require.Equal(t, c.script == ends, strings.Contains(p.out.String(), "ends\n"), p.out.String())
				awaitEndOfGroup(t, group)
			})
		}
	}
}

// commandOf returns the process of the command, which has written its number, and its group.
func commandOf(t *testing.T, p *process) (pid, group int) {
	t.Helper()
	match := regexp.MustCompile(`pid (\d+)\n`).FindStringSubmatch(p.out.String())
	require.NotNil(t, match, p.out.String())
	pid, err := strconv.Atoi(match[1])
	require.NoError(t, err)
	group, err = syscall.Getpgid(pid)
	require.NoError(t, err)
	require.Greater(t, group, 1)
	require.NotEqual(t, syscall.Getpgrp(), group, "a group of its own")
	t.Cleanup(func() {
		if t.Failed() {
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
	})
	return pid, group
}

func awaitEndOfGroup(t *testing.T, group int) {
	t.Helper()
	eventually(t, func() bool { return groupIsDead(t, group) }, "the end of group %d", group)
}

// groupIsDead reports whether a group has no process. Where there is /proc, processes that nobody
// has reaped do not count: in a container, that may last for ever.
func groupIsDead(t *testing.T, group int) bool {
	t.Helper()
	if err := syscall.Kill(-group, 0); errors.Is(err, syscall.ESRCH) {
		return true
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// The name of the program, in parentheses, may contain anything. The state, the parent and
		// the group follow.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) > 2 && fields[2] == strconv.Itoa(group) && fields[0] != "Z" && fields[0] != "X" {
			return false
		}
	}
	return len(stats) > 0
}

func TestRedlatchThatIsKilledTakesTheGroupWithIt(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for kind, trap := range map[string]string{"the command ends": "", "the command ignores SIGTERM": "trap '' TERM; "} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := start(t, server.URL(), "run", "--grace", "100ms", redistest.Name(t), "--", "sh", "-c", trap+"echo pid $$; "+forever)
			p.awaitOut("runs")
			_, group := commandOf(t, p)
			require.NoError(t, p.cmd.Process.Kill())
			awaitEndOfGroup(t, group)
		})
	}
}

func TestRunWhenRedisDies(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	name := redistest.Name(t)
	long := start(t, server.URL(), "run", "--lease", "8s", "--grace", "1s", name, "--", "sh", "-c", forever)
	long.awaitOut("runs")
	server.Kill()
	require.Equal(t, 75, long.wait(), long.err.String())

	got := run(t, server.URL(), "run", "--connect-timeout", "3s", name, "--", "echo", "ran")
	require.Equal(t, 69, got.code)
	require.Empty(t, got.out)
	require.Contains(t, got.err, "redlatch: redis is not available at "+server.Addr()+": ")
	require.Contains(t, got.err, "refused")

	waits := start(t, server.URL(), "run", "-w", "10m", name, "--", "echo", "ran") // the time of -w is for Redis too
	server.Restart()
	require.Equal(t, 0, waits.wait(), waits.err.String())
	require.Equal(t, "ran\n", waits.out.String())
}

// The command ends while Redis is down, and before the lease does: its exit code counts.
func TestACommandThatEndsInAnOutageKeepsItsExitCode(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "go")
	p := command(t, []string{"REDIS_URL=" + server.URL(), releaseEnv + "=1s"},
		"run", "--lease", "10m", redistest.Name(t), "--", "sh", "-c", "echo runs; while ! [ -e "+file+" ]; do sleep 0.02; done; exit 3").start()
	p.awaitOut("runs")
	server.Kill()
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Equal(t, 3, p.wait())
	require.Contains(t, p.err.String(), "the lock may stay until its lease ends")
}

func TestAtLeastKeepsTheLock(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	locks := newLocks(t, server.Client(t))
	name := redistest.Name(t)
	require.Equal(t, 0, run(t, server.URL(), "run", "--at-least", "1h", name, "--", "true").code)
	info, err := locks.Mutex(name).Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, info.IsKept())
	require.Greater(t, info.Remaining, 50*time.Minute)
	require.Equal(t, 1, run(t, server.URL(), "run", "-n", name, "--", "true").code)

	name = redistest.Name(t)
	require.Equal(t, 9, run(t, server.URL(), "run", "--at-least", "1h", "--of", "2", name, "--", "sh", "-c", "exit 9").code, "also after a failure")
	permits, err := locks.Semaphore(name, 2).Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, permits.Holders[0].IsKept())

	name = redistest.Name(t)
	require.Equal(t, 0, run(t, server.URL(), "run", "--at-least", "1ms", name, "--", "sleep", "0.01").code)
	info, err = locks.Mutex(name).Inspect(t.Context())
	require.NoError(t, err)
	require.False(t, info.Held(), "it has been long enough")
}

func TestMaxHoldEndsTheCommand(t *testing.T) {
	t.Parallel()
	p := start(t, redistest.Shared(t).URL(), "run", "--max-hold", "100ms", "--lease", "200ms", redistest.Name(t), "--", "sh", "-c", forever)
	require.Equal(t, 75, p.wait())
}

func TestAnotherLimitIsWrongUsage(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	name := redistest.Name(t)
	permit, err := newLocks(t, server.Client(t)).Semaphore(name, 3).Acquire(t.Context(), 1)
	require.NoError(t, err)
	defer runtime.KeepAlive(permit)
	got := run(t, server.URL(), "run", "--of", "4", name, "--", "true")
	require.Equal(t, 64, got.code)
	require.Contains(t, got.err, "limit")
}

// A hidden process of redlatch must not keep a pipe open, nor be in the way of one.
func TestRunInAPipe(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	p := command(t, []string{"REDIS_URL=" + server.URL()}, "run", redistest.Name(t), "--", "cat")
	p.cmd.Stdin = strings.NewReader("through the pipe")
	p.start()
	require.Equal(t, 0, p.wait())
	require.Equal(t, "through the pipe", p.out.String())
}

// As under nohup(1).
func TestAnIgnoredSignalStaysIgnored(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	p := command(t, []string{"REDIS_URL=" + server.URL()}, "run", redistest.Name(t), "--", "sh", "-c", "trap 'echo ends; exit 4' USR1; "+forever)
	p.cmd.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`, p.cmd.Path}, p.cmd.Args[1:]...)
	path, err := exec.LookPath("sh")
	require.NoError(t, err)
	p.cmd.Path = path
	p.start()
	p.awaitOut("runs")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGUSR1)) // redlatch would pass SIGHUP before
	require.Equal(t, 4, p.wait())
	require.Contains(t, p.out.String(), "ends")
}

func TestOneWaitTimeIsForALockThatIsFree(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	name := redistest.Name(t)
	hold, err := newLocks(t, server.Client(t), redlatch.WithLease(time.Hour)).Mutex(name).Lock(t.Context())
	require.NoError(t, err)
	p := start(t, server.URL(), "run", "-w", "60", name, "--", "true") // a number of seconds, as for flock
	eventually(t, func() bool {
		n, err := server.Client(t).PubSubNumSub(t.Context(), "redisson_lock__channel:{"+name+"}").Result()
		return err == nil && n["redisson_lock__channel:{"+name+"}"] > 0
	}, "a waiter")
	require.NoError(t, hold.Unlock(t.Context()))
	require.Equal(t, 0, p.wait())
}
