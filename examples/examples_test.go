// Package examples runs the examples as a new user would, and checks their output.
package examples

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// programs is the folder of the compiled examples.
var programs string

// Nothing is compiled while examples run: they show who is first in real time.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if programs, err = os.MkdirTemp("", "examples"); err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(programs) }()
		if out, err := exec.Command("go", "build", "-o", programs, "./...").CombinedOutput(); err != nil {
			panic(string(out))
		}
		return m.Run()
	}())
}

func run(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(programs, name)).CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

func TestQuickstartPrintsItsStory(t *testing.T) {
	t.Parallel()
	out := run(t, "quickstart")
	require.Contains(t, out, "locks it again further down its call chain")
	require.Contains(t, out, "is killed with -9")
	require.Contains(t, out, "took over")
	require.Contains(t, out, "Done: ")
}

func TestNestedLocksThreeDeepUnderOneFence(t *testing.T) {
	t.Parallel()
	out := run(t, "nested")
	require.Regexp(t, `checkout\s+holds 1, fence (\d+)`, out)
	require.Regexp(t, `reserve\s+holds 3`, out)
	require.Contains(t, out, "another owner waits in vain")
	require.Regexp(t, `charge, after reserve\s+holds 2`, out)
}

func TestLongjobIsTakenOverInOrder(t *testing.T) {
	t.Parallel()
	out := run(t, "longjob")
	require.Contains(t, out, "Bob  waits: 1 of 1; Ann has it since ")
	require.Contains(t, out, "Cid  waits: 2 of 2; Ann has it since ")
	require.Contains(t, out, "Ann  is killed with -9")
	require.Contains(t, out, "Bob  was next in the queue, and took over ")
	require.Contains(t, out, "Done. They began in order of arrival: Ann, Bob, Cid. Ann was killed half-way, and the others did the job.")

	picture, err := os.ReadFile(filepath.Join("longjob", "longjob.svg"))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, line := range []string{lines[1], lines[len(lines)-1]} {
		require.Contains(t, string(picture), ">"+line+"</text>", "the recording is old: run make cast")
	}
}

func TestWorkersNeverUseMoreThanTheirPlaces(t *testing.T) {
	t.Parallel()
	out := run(t, "workers")
	require.Contains(t, out, "is killed with -9")
	require.NotContains(t, out, "####")
	require.Contains(t, out, "# is in use, . is free")
	require.Contains(t, out, "begins job 4, with two places")
	require.Contains(t, out, "[###]")
	require.Contains(t, out, "Done: ")
}

// docs/getting-started.md has the whole program, letter for letter.
func TestThePageHasTheProgram(t *testing.T) {
	program, err := os.ReadFile(filepath.Join("gettingstarted", "main.go"))
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join("..", "docs", "getting-started.md"))
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, 1)
	require.Equal(t, string(program), blocks[0][1])
}

// Two processes run as the page says: the second waits, and has the lock after the first.
func TestGettingStarted(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t)
	start := func() (lines *bufio.Scanner, cmd *exec.Cmd) {
		cmd = exec.CommandContext(t.Context(), filepath.Join(programs, "gettingstarted"))
		cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+server.Addr())
		cmd.Stderr = os.Stderr
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		return bufio.NewScanner(stdout), cmd
	}
	next := func(lines *bufio.Scanner, want string) (fence string) {
		require.True(t, lines.Scan(), want)
		found := regexp.MustCompile("^" + want + "$").FindStringSubmatch(lines.Text())
		require.NotNil(t, found, lines.Text())
		return found[len(found)-1]
	}

	first, firstProcess := start()
	next(first, "waits for the lock of order 42")
	fence := next(first, `has the lock, with fence (\d+)`)
	second, secondProcess := start()
	next(second, "waits for the lock of order 42")
	require.Equal(t, fence, next(first, `saves the order, with fence (\d+)`), "one grant")
	require.NoError(t, firstProcess.Wait())

	require.Greater(t, next(second, `has the lock, with fence (\d+)`), fence)
	require.NoError(t, secondProcess.Process.Signal(os.Interrupt))
	require.False(t, second.Scan(), "it stops before it saves")
	require.Error(t, secondProcess.Wait())
	require.Equal(t, []string{"redisson_lock_token:{orders:42}"}, server.Keys(), "it has released the lock")
}
