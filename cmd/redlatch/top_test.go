//go:build unix

package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// screenSession is redlatch on a terminal whose screen the test sees.
type screenSession struct {
	*process
	keyboard *os.File

	mu       sync.Mutex // guards the emulator, except its answers, which are a pipe
	emulator *vt.Emulator
}

// Write shows what the program writes.
func (s *screenSession) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.emulator.Write(p)
}

// startOnScreen runs a script of bash on a terminal of 80 columns and 24 lines. In the script,
// $redlatch is the program.
func startOnScreen(t *testing.T, env []string, script string) *screenSession {
	t.Helper()
	p := command(t, append([]string{"redlatch=" + os.Args[0], "TERM=xterm-256color", "COLORTERM=", "TMUX=", "SSH_TTY="}, env...))
	bash, err := exec.LookPath("bash")
	require.NoError(t, err)
	p.cmd.Path, p.cmd.Args = bash, []string{"bash", "--norc", "-c", script}
	p.cmd.Stdout, p.cmd.Stderr = nil, nil
	const width, height = 80, 24
	keyboard, err := pty.StartWithSize(p.cmd, &pty.Winsize{Cols: width, Rows: height})
	require.NoError(t, err)
	s := &screenSession{process: p, keyboard: keyboard, emulator: vt.NewEmulator(width, height)}
	go func() { _, _ = io.Copy(keyboard, s.emulator) }() // the terminal answers questions
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.MultiWriter(s, &p.out), keyboard)
	}()
	go func() { defer close(p.done); _ = p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		_ = keyboard.Close()
		<-read
		_ = s.emulator.InputPipe().(io.Closer).Close()
	})
	return s
}

func (s *screenSession) press(keys string) {
	s.t.Helper()
	_, err := s.keyboard.WriteString(keys)
	require.NoError(s.t, err)
}

func (s *screenSession) resize(width, height int) {
	s.t.Helper()
	s.mu.Lock()
	s.emulator.Resize(width, height)
	s.mu.Unlock()
	require.NoError(s.t, pty.Setsize(s.keyboard, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)}))
}

// awaitScreen waits until the screen has a text.
func (s *screenSession) awaitScreen(text string) {
	s.t.Helper()
	eventually(s.t, func() bool { return strings.Contains(s.screen(), text) }, "%q on the screen:\n%s", text, screenText{s})
}

// screenText shows the screen when somebody prints it.
type screenText struct{ s *screenSession }

func (s screenText) String() string { return s.s.screen() }

func (s *screenSession) screen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.emulator.String()
}

func (s *screenSession) isAlternate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.emulator.IsAltScreen()
}

// line returns the line of the screen that begins with a text.
func (s *screenSession) line(begin string) string {
	for line := range strings.Lines(s.screen()) {
		if strings.HasPrefix(line, begin) {
			return line
		}
	}
	return ""
}

const (
	topScript = `"$redlatch" top; echo "code $?"; stty -a; read line; echo "shell got $line"`

	entersAlternateScreen = "\x1b[?1049h"
	leavesAlternateScreen = "\x1b[?1049l"
	hidesCursor           = "\x1b[?25l"
	showsCursor           = "\x1b[?25h"
)

// requireTerminalBack checks that a shell can use the terminal as before.
func (s *screenSession) requireTerminalBack(code string) {
	s.t.Helper()
	s.awaitScreen("code " + code)
	s.awaitScreen(" icanon")
	s.awaitScreen(" echo ")
	out := s.out.String()
	require.Greater(s.t, strings.LastIndex(out, leavesAlternateScreen), strings.LastIndex(out, entersAlternateScreen))
	require.Greater(s.t, strings.LastIndex(out, showsCursor), strings.LastIndex(out, hidesCursor))
	require.False(s.t, s.isAlternate())
	s.press("hello\n")
	s.awaitScreen("shell got hello")
	require.Equal(s.t, 0, s.wait())
}

func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	scene := newScene(t)
	hold, err := scene.locks.Mutex("alone", redlatch.WithLease(time.Hour)).Lock(t.Context())
	require.NoError(t, err)
	defer func() { _ = hold.Unlock(t.Context()) }()
	s := startOnScreen(t, scene.env(), topScript)
	s.awaitScreen("3 names, 2 wait  by waiters")
	require.True(t, s.isAlternate())
	require.Regexp(t, `door +the test +.*s +.*s +1 +`, s.screen())
	s.awaitScreen("q quit")

	s.press("n")
	s.awaitScreen("by name")
	eventually(t, func() bool { return strings.HasPrefix(s.line(">"), ">alone ") }, "the first name is marked")
	s.press("\x1b[B") // down
	eventually(t, func() bool { return strings.HasPrefix(s.line(">"), ">door ") }, "the mark moves")
	s.press("\r")
	s.awaitScreen("holder:      " + scene.hold.ID())
	s.awaitScreen("queue:       1 wait")
	s.awaitScreen("alive:       not known yet")
	s.resize(40, 10)
	eventually(t, func() bool {
		return strings.HasSuffix(strings.TrimRight(s.screen(), "\n "), "i whole i…") && len(strings.Split(s.screen(), "\n")) == 10
	}, "the screen of 40 columns:\n%s", screenText{s})
	s.press("\x1b") // esc
	s.awaitScreen(" NAME                    WAITERS  OLDEST")
	s.resize(80, 24)
	s.awaitScreen("LEASE")
	s.press("/rend\r")
	eventually(t, func() bool {
		return strings.HasPrefix(s.line(">"), ">render ") && !strings.Contains(s.screen(), "door")
	}, "the filter")
	require.NoError(t, scene.permit.Release(t.Context())) // the waiter gets it
	eventually(t, func() bool { return strings.Contains(s.line(">"), "  0") }, "another reading")

	s.press("\x03")
	s.requireTerminalBack("130")
}

func TestTopGivesTheTerminalBack(t *testing.T) {
	t.Parallel()
	scene := newScene(t)
	for kind, c := range map[string]struct {
		end  func(t *testing.T, s *screenSession)
		code string
	}{
		"q":       {func(_ *testing.T, s *screenSession) { s.press("q") }, "0"},
		"SIGTERM": {func(t *testing.T, s *screenSession) { s.signalTop(t, syscall.SIGTERM) }, "143"},
		"SIGINT":  {func(t *testing.T, s *screenSession) { s.signalTop(t, syscall.SIGINT) }, "130"},
		"SIGHUP":  {func(t *testing.T, s *screenSession) { s.signalTop(t, syscall.SIGHUP) }, "129"},
		"a panic": {func(_ *testing.T, s *screenSession) { s.press("P") }, "70"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			script := `"$redlatch" top & echo $! > "$pid"; fg >/dev/null; echo "code $?"; stty -a; read line; echo "shell got $line"`
			s := startOnScreen(t, append(scene.env(), panicEnv+"=P", "pid="+t.TempDir()+"/pid"), "set -m; "+script)
			s.awaitScreen("by waiters")
			c.end(t, s)
			s.requireTerminalBack(c.code)
			if kind == "a panic" {
				require.Contains(t, s.out.String(), "the key P")
				require.Contains(t, s.out.String(), "redlatch: this is a bug of redlatch top")
			}
		})
	}
}

// signalTop sends a signal to top alone.
func (s *screenSession) signalTop(t *testing.T, number syscall.Signal) {
	t.Helper()
	foreground, err := tcgetpgrp(s.keyboard)
	require.NoError(t, err)
	require.NotEqual(t, s.cmd.Process.Pid, foreground, "top has a group of its own")
	require.NoError(t, syscall.Kill(foreground, number))
}

func TestTopWhenRedisDies(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	hold, err := newLocks(t, server.Client(t), redlatch.WithLease(time.Hour)).Mutex("door").Lock(t.Context())
	require.NoError(t, err)
	defer runtime.KeepAlive(hold)
	s := startOnScreen(t, []string{"REDIS_URL=" + server.URL()}, `"$redlatch" top --interval 0.1; echo "code $?"; stty -a; read line; echo "shell got $line"`)
	s.awaitScreen(">door")
	server.Kill()
	s.awaitScreen("this is the last one: ")
	s.awaitScreen("no reading for 1s") // its age
	require.Contains(t, s.line(">"), ">door", "the last reading stays")
	s.press("\r")
	s.awaitScreen("holder:      " + hold.ID()) // keys work
	s.press("\x1b")
	server.Restart()
	s.awaitScreen("Nobody holds or waits")
	s.awaitScreen("read in ")
	server.Pause()
	s.awaitScreen("Redis is slow: reading for ")
	s.press("n")
	s.awaitScreen("by name")
	s.press("q")
	s.requireTerminalBack("0")
	server.Resume()
}

func TestTopInColours(t *testing.T) {
	t.Parallel()
	scene := newScene(t)
	const coloured = "\x1b[33m" // a name that somebody waits for
	for _, env := range []string{"NO_COLOR=", "NO_COLOR=1"} {
		s := startOnScreen(t, append(scene.env(), env), `"$redlatch" top --sort name`)
		s.awaitScreen(" render")
		s.press("q")
		require.Equal(t, 0, s.wait())
		require.Equal(t, env == "NO_COLOR=", strings.Contains(s.out.String(), coloured), env)
		require.Contains(t, s.out.String(), "\x1b[7m", "the mark of the selected row is no colour")
	}
}

func TestTopOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	hostile := "a\x1b[31m\u202eb"
	rdb := redistest.Start(t)
	require.NoError(t, rdb.Client(t).HSet(t.Context(), hostile, holderID, 1, "redlatch:about", hostile).Err())
	require.NoError(t, rdb.Client(t).Set(t.Context(), "redisson_lock_token:{"+hostile+"}", 1, 0).Err())

	got := s.run(t, "top", "--once", "--sort", "name")
	require.Equal(t, 0, got.code, got.err)
	require.Equal(t, s.run(t, "ls").out[:30], got.out[:30])
	require.Regexp(t, `(?s)^NAME +KIND .*\ndoor +mutex +the test .*\nrender +semaphore`, got.out)
	require.Regexp(t, `(?s)^NAME +KIND .*\nrender +semaphore`, s.run(t, "top", "--once", "--sort", "held", "r*").out)
	got = s.run(t, "top", "--once", "nothing*")
	require.Equal(t, 0, got.code)
	require.Empty(t, got.out)
	require.Contains(t, got.err, "--hashes")

	out := decode(t, s.run(t, "top", "--json", "--sort", "oldest"))
	require.Equal(t, "oldest", out["sort"])
	require.Equal(t, false, out["truncated"])
	require.NotEmpty(t, out["time"])
	list := decode(t, s.run(t, "ls", "--json"))
	names := map[string]map[string]any{}
	for _, n := range out["names"].([]any) {
		n := n.(map[string]any)
		names[n["name"].(string)] = n
		require.EqualValues(t, 1, n["waiters"])
		require.Greater(t, n["oldest_wait"], 0.0)
	}
	for _, n := range list["names"].([]any) {
		n := n.(map[string]any)
		for key := range n {
			require.Contains(t, names[n["name"].(string)], key, "all that ls has")
		}
	}
	require.Len(t, names, 2)
	require.Equal(t, []any{}, decode(t, s.run(t, "top", "--json", "nothing*"))["names"])

	for _, args := range [][]string{{"top", "--once"}, {"top", "--json"}} {
		got := run(t, rdb.URL(), args...)
		require.Contains(t, got.out, `\u202eb`)
		require.NotContains(t, got.out, "\x1b")
		require.NotContains(t, got.out, "\u202e")
	}
}

func TestTopRefusesWrongUsage(t *testing.T) {
	t.Parallel()
	for text, args := range map[string][]string{
		"use --once": {"top"}, "--sort must be one of waiters, oldest, held, name": {"top", "--once", "--sort", "size"}, "from 100ms to 1h0m0s": {"top", "--once", "--interval", "0.05"},
		"to 1h0m0s": {"top", "--once", "--interval", "2h"}, "--limit": {"top", "--once", "--limit", "0"}, "at most 1 arg": {"top", "a", "b"}, "must be a time": {"top", "--interval", "soon"},
	} {
		got := run(t, "redis://127.0.0.1:1", args...)
		require.Equal(t, 64, got.code, got.err)
		require.Contains(t, got.err, text)
		require.NotContains(t, got.out+got.err, "\x1b")
	}
	// A terminal that shows lines only; only the output is a terminal; only the input is one.
	for _, script := range []string{`TERM=dumb "$redlatch" top; echo "code $?"`, `"$redlatch" top </dev/null; echo "code $?"`, `"$redlatch" top | cat; echo "code ${PIPESTATUS[0]}"`} {
		s := startOnScreen(t, []string{"REDIS_URL=redis://127.0.0.1:1"}, script)
		s.awaitScreen("code 64")
		require.Contains(t, s.out.String(), "use --once")
	}
	got := run(t, redistest.Shared(t).URL(), "top", "--once", "[")
	require.Equal(t, 64, got.code)
}

// The client of locks waits through an outage, but a reading does not.
func TestAReadingEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	hold, err := newLocks(t, server.Client(t)).Mutex("door").Lock(t.Context())
	require.NoError(t, err)
	defer runtime.KeepAlive(hold)
	require.NoError(t, server.Client(t).Set(t.Context(), "odd", "no lock", 0).Err())
	require.NoError(t, server.Client(t).Set(t.Context(), "redisson_lock_token:{odd}", 1, 0).Err())
	proxy := redistest.NewProxy(t, server.Addr())
	a := newApp(os.Stdin, io.Discard, io.Discard)
	f := &topFlags{listFlags: listFlags{limit: 10}}
	a.conn.getenv = func(name string) string {
		return map[string]string{"REDIS_URL": "redis://" + proxy.Addr()}[name]
	}
	a.conn.timeout.value = guardTime
	c, err := a.connect(t.Context(), 0)
	require.NoError(t, err)
	defer c.close()
	r := a.readTop(t.Context(), c, f, "", topQuery{})
	require.NoError(t, r.err, "one name that cannot be read is no outage")
	require.Len(t, r.states, 2)
	require.NoError(t, r.states[0].Err)
	require.ErrorContains(t, r.states[1].Err, "WRONGTYPE")

	proxy.Inject(redistest.Rule{Match: redistest.Command("EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO"), Action: redistest.Swallow()})
	a.conn.timeout.value, a.limits.reading = 0, 200*time.Millisecond
	for _, q := range []topQuery{{}, {"door"}} {
		r = a.readTop(t.Context(), c, f, "", q)
		require.ErrorIs(t, r.err, context.DeadlineExceeded, "an outage, and not a name that cannot be read")
	}
}

// tmux is a terminal as people use it over SSH.
func TestTopInTmux(t *testing.T) {
	t.Parallel()
	tmux, err := exec.LookPath("tmux")
	if err != nil {
		t.Skip("needs tmux")
	}
	scene := newScene(t)
	dir, err := os.MkdirTemp("", "tmux") // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(tmux, append([]string{"-S", dir + "/s", "-f", "/dev/null"}, args...)...)
		cmd.Env = command(t, append(scene.env(), "redlatch="+os.Args[0])).cmd.Env
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	run("new-session", "-d", "-x", "80", "-y", "24", `bash --norc -c '"$redlatch" top; echo "code $?"; read line; echo "shell got $line"; read line'`)
	t.Cleanup(func() { run("kill-server") })
	await := func(text string) {
		t.Helper()
		last := ""
		eventually(t, func() bool { last = run("capture-pane", "-p"); return strings.Contains(last, text) }, "%q in tmux", text)
	}
	await("2 names, 2 wait  by waiters")
	run("send-keys", "n", "Enter")
	await("holder:      " + scene.hold.ID())
	run("resize-window", "-x", "40", "-y", "10")
	await("i whole i…")
	run("send-keys", "Escape")
	await("WAITERS  OLDEST")
	run("send-keys", "C-c")
	await("code 130")
	run("send-keys", "hello", "Enter")
	await("shell got hello")
}
