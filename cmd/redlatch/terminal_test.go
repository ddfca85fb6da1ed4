//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// session is a process that leads a session on a terminal.
type session struct {
	*process
	keyboard *os.File
	read     chan struct{} // closed when all output was read, and no process has the terminal
}

// startOnTerminal runs a command on a terminal of its own. In a script, $redlatch is the program.
func startOnTerminal(t *testing.T, url string, env []string, args ...string) *session {
	t.Helper()
	p := command(t, append([]string{"REDIS_URL=" + url, "redlatch=" + os.Args[0]}, env...))
	p.cmd.Args = args
	path, err := exec.LookPath(args[0])
	require.NoError(t, err)
	p.cmd.Path = path
	p.cmd.Stdout, p.cmd.Stderr = nil, nil
	terminal, err := pty.Start(p.cmd)
	require.NoError(t, err)
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		for {
			n, err := terminal.Read(buf)
			_, _ = p.out.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() { defer close(p.done); _ = p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		_ = terminal.Close()
		if !t.Failed() { // otherwise a process may still have the terminal
			<-read
		}
	})
	return &session{p, terminal, read}
}

func (s *session) press(keys string) {
	s.t.Helper()
	_, err := s.keyboard.WriteString(keys)
	require.NoError(s.t, err)
}

// awaitAllOutput returns when no process can write to the terminal any more.
func (s *session) awaitAllOutput() {
	s.t.Helper()
	select {
	case <-s.read:
	case <-time.After(guardTime):
		s.t.Fatalf("a process still has the terminal; output %q", s.out.String())
	}
}

func TestTheCommandReadsFromTheTerminal(t *testing.T) {
	t.Parallel()
	s := startOnTerminal(t, redistest.Shared(t).URL(), nil, "bash", "-c", `"$redlatch" run `+redistest.Name(t)+` -- sh -c 'echo runs; read line; echo "got $line"; exit 6'; echo "code $?"; read line; echo "shell got $line"`)
	s.awaitOut("runs")
	s.press("hello\n")
	s.awaitOut("got hello")
	s.awaitOut("code 6")
	s.press("again\n") // the terminal is back
	s.awaitOut("shell got again")
	require.Equal(t, 0, s.wait())
}

func TestAnInterruptEndsTheCommandAndTheScriptAroundIt(t *testing.T) {
	t.Parallel()
	name := redistest.Name(t)
	server := redistest.Shared(t)
	s := startOnTerminal(t, server.URL(), nil, "bash", "-c", `"$redlatch" run `+name+` -- sh -c '`+forever+`'; echo "after"`)
	s.awaitOut("runs")
	s.press("\x03")
	s.wait()
	s.awaitAllOutput()
	require.Equal(t, syscall.SIGINT, s.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	require.NotContains(t, s.out.String(), "after")
	require.Equal(t, 0, run(t, server.URL(), "run", "-n", name, "--", "true").code, "the lock is free again")
}

// A test must not press ^C before the last one has had its effects: the terminal drops output that
// nobody has read, two signals may become one, and a ^C after the end of the command would end the
// shell.
func TestTwoInterruptsOfTheTerminalKill(t *testing.T) {
	t.Parallel()
	s := startOnTerminal(t, redistest.Shared(t).URL(), []string{interruptsEnv + "=1h"}, "bash", "-c", `"$redlatch" run `+redistest.Name(t)+` -- sh -c 'trap "echo interrupted" INT; `+forever+`'; echo "code $?"; read line; echo "shell got $line"`)
	s.awaitOut("runs")
	s.press("\x03")
	s.awaitOut("interrupted")
	s.awaitOut(noticedInterrupt)
	s.press("\x03")
	s.awaitOut("code 137")
	s.press("hello\n") // the terminal is back
	s.awaitOut("shell got hello")
	require.Equal(t, 0, s.wait())
}

// interruptedUntil is a command that counts each ^C, and ends with exit code 8 at the last one.
func interruptedUntil(last int) string {
	return fmt.Sprintf(`n=0; trap "n=\$((n+1)); echo interrupted \$n" INT; echo runs; while [ $n -lt %d ]; do sleep 0.02; done; exit 8`, last)
}

// interrupt presses ^C, and waits until the command and redlatch have dealt with it, unless it is
// the last one.
func (s *session) interrupt(n, last int) {
	s.t.Helper()
	s.press("\x03")
	if n < last {
		s.awaitOut(fmt.Sprint("interrupted ", n))
		eventually(s.t, func() bool { return strings.Count(s.out.String(), noticedInterrupt) == n }, "redlatch notices ^C number %d", n)
	}
}

func TestInterruptsThatAreFarApartDoNotKill(t *testing.T) {
	t.Parallel()
	const last = 3
	s := startOnTerminal(t, redistest.Shared(t).URL(), []string{interruptsEnv + "=1ns"}, "bash", "-c", `"$redlatch" run `+redistest.Name(t)+` -- sh -c '`+interruptedUntil(last)+`'; echo "code $?"`)
	s.awaitOut("runs")
	for n := range last {
		s.interrupt(n+1, last)
	}
	s.awaitOut("code 8")
}

// An interactive program has ^C for itself, so twice does not kill it.
func TestAProgramThatEditsLinesIsNotKilled(t *testing.T) {
	t.Parallel()
	const last = 5
	s := startOnTerminal(t, redistest.Shared(t).URL(), []string{interruptsEnv + "=1h"}, "bash", "-c", `"$redlatch" run `+redistest.Name(t)+` -- sh -c 'stty -icanon; `+interruptedUntil(last)+`'; echo "code $?"`)
	s.awaitOut("runs")
	for n := range last {
		s.interrupt(n+1, last)
	}
	s.awaitOut("code 8")
}

func TestAStopDoesNotKeepTheLock(t *testing.T) {
	t.Parallel()
	s := startOnTerminal(t, redistest.Shared(t).URL(), nil, "bash", "-c", `"$redlatch" run `+redistest.Name(t)+` -- sh -c 'echo runs; read line; echo "got $line"'; echo "code $?"`)
	s.awaitOut("runs")
	s.press("\x1a")
	s.awaitOut("the command goes on")
	s.press("hello\n")
	s.awaitOut("got hello")
	s.awaitOut("code 0")
}

func TestInTheBackgroundTheCommandWaitsForTheTerminal(t *testing.T) {
	t.Parallel()
	s := startOnTerminal(t, redistest.Shared(t).URL(), nil, "bash", "--norc", "-c", `set -m; "$redlatch" run `+redistest.Name(t)+` -- sh -c 'echo runs; read line; echo "got $line"' & read line; echo "shell got $line"; fg; echo "code $?"`)
	s.awaitOut("runs")
	s.awaitOut("redlatch is in the background")
	s.press("first\n")
	s.awaitOut("shell got first")
	s.press("second\n")
	s.awaitOut("got second")
	s.awaitOut("code 0")
}

func TestALostLockGivesTheTerminalBack(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	name := redistest.Name(t)
	s := startOnTerminal(t, server.URL(), []string{renewEnv + "=50ms"}, "bash", "-c", `"$redlatch" run `+name+` -- sh -c 'stty -echo -icanon; `+forever+`'; echo "code $?"; stty -a; read line; echo "shell got $line"`)
	s.awaitOut("runs")
	require.NoError(t, server.Client(t).Del(t.Context(), name).Err())
	s.awaitOut("code 75")
	s.awaitOut(" icanon")
	s.press("hello\n")
	s.awaitOut("shell got hello")
}

// tcgetpgrp returns the foreground group of a terminal.
func tcgetpgrp(terminal *os.File) (int, error) {
	return unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
}
