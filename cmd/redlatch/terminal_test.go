//go:build unix

package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// session is a process that leads a session on a terminal.
type session struct {
	*process
	keyboard *os.File
}

// startOnTerminal runs a command on a terminal of its own. In a script, $redlatch is the program.
func startOnTerminal(t *testing.T, url string, args ...string) *session {
	t.Helper()
	p := command(t, []string{"REDIS_URL=" + url, "redlatch=" + os.Args[0]})
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
	return &session{p, terminal}
}

func (s *session) press(keys string) {
	s.t.Helper()
	_, err := s.keyboard.WriteString(keys)
	require.NoError(s.t, err)
}

func TestTheCommandReadsFromTheTerminal(t *testing.T) {
	t.Parallel()
	s := startOnTerminal(t, redistest.Shared(t).URL(), "bash", "-c", `"$redlatch" run `+redistest.Name(t)+` -- sh -c 'echo runs; read line; echo "got $line"; exit 6'; echo "code $?"; read line; echo "shell got $line"`)
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
	s := startOnTerminal(t, server.URL(), "bash", "-c", `"$redlatch" run `+name+` -- sh -c '`+forever+`'; echo "after"`)
	s.awaitOut("runs")
	s.press("\x03")
	s.wait()
	require.Equal(t, syscall.SIGINT, s.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	require.NotContains(t, s.out.String(), "after")
	require.Equal(t, 0, run(t, server.URL(), "run", "-n", name, "--", "true").code, "the lock is free again")
}

func TestTwoInterruptsOfTheTerminalKill(t *testing.T) {
	t.Parallel()
	s := startOnTerminal(t, redistest.Shared(t).URL(), "bash", "-c", `"$redlatch" run `+redistest.Name(t)+` -- sh -c 'trap "echo interrupted" INT; `+forever+`'; echo "code $?"; read line; echo "shell got $line"`)
	s.awaitOut("runs")
	eventually(t, func() bool {
		s.press("\x03")
		return strings.Contains(s.out.String(), "code 137")
	}, "the end")
	require.Contains(t, s.out.String(), "interrupted")
}

// An interactive program has ^C for itself, so twice does not kill it.
func TestAProgramThatEditsLinesIsNotKilled(t *testing.T) {
	t.Parallel()
	s := startOnTerminal(t, redistest.Shared(t).URL(), "bash", "-c", `"$redlatch" run `+redistest.Name(t)+` -- sh -c 'stty -icanon; trap "echo interrupted" INT; echo runs; n=0; while [ $n -lt 400 ]; do n=$((n+1)); sleep 0.01; done; exit 8'; echo "code $?"`)
	s.awaitOut("runs")
	for range 5 {
		before := strings.Count(s.out.String(), "interrupted")
		s.press("\x03")
		eventually(t, func() bool {
			return strings.Count(s.out.String(), "interrupted") > before || strings.Contains(s.out.String(), "code")
		}, "an interrupt")
	}
	s.awaitOut("code 8")
}

func TestAStopDoesNotKeepTheLock(t *testing.T) {
	t.Parallel()
	s := startOnTerminal(t, redistest.Shared(t).URL(), "bash", "-c", `"$redlatch" run `+redistest.Name(t)+` -- sh -c 'echo runs; read line; echo "got $line"'; echo "code $?"`)
	s.awaitOut("runs")
	s.press("\x1a")
	s.awaitOut("the command goes on")
	s.press("hello\n")
	s.awaitOut("got hello")
	s.awaitOut("code 0")
}

func TestInTheBackgroundTheCommandWaitsForTheTerminal(t *testing.T) {
	t.Parallel()
	s := startOnTerminal(t, redistest.Shared(t).URL(), "bash", "--norc", "-c", `set -m; "$redlatch" run `+redistest.Name(t)+` -- sh -c 'echo runs; read line; echo "got $line"' & read line; echo "shell got $line"; fg; echo "code $?"`)
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
	s := startOnTerminal(t, server.URL(), "bash", "-c", `"$redlatch" run --lease 1s `+name+` -- sh -c 'stty -echo -icanon; `+forever+`'; echo "code $?"; stty -a; read line; echo "shell got $line"`)
	s.awaitOut("runs")
	require.NoError(t, server.Client(t).Del(t.Context(), name).Err())
	s.awaitOut("code 75")
	s.awaitOut(" icanon")
	s.press("hello\n")
	s.awaitOut("shell got hello")
}
