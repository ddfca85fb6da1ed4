package stage

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Turn is one wait in a queue, with times of the clock that the processes of a host share.
type Turn struct {
	Asked int64 // before Lock was called
	Stood int64 // when the place was known; 0: it did not have to wait
	Fence int64 // 0: it gave up
}

// Report is what a holder finds when it checks its lock.
type Report struct {
	Acquisition   string
	Fence         int64
	Trusted       bool
	Reentry       string
	InnerIsLost   bool
	OuterIsLost   bool
	TryIsLost     bool
	ReentryIsLost bool
	Cause         string
	AgainHasFence int64
	AgainIsDenied bool
	Turns         []Turn
}

// Worker is a process that runs one of Workers.
type Worker struct {
	t       testing.TB
	cmd     *exec.Cmd
	in      io.Writer
	Reports chan Report
	end     chan error
}

// StartWorker starts this test binary again. The new process runs one of Workers.
func StartWorker(t testing.TB, name string, env ...string) *Worker {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), workerEnv+"="+name), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	w := &Worker{t: t, cmd: cmd, in: in, Reports: make(chan Report, 10), end: make(chan error, 1)}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		for d := json.NewDecoder(out); ; {
			var f Report
			if d.Decode(&f) != nil {
				return
			}
			w.Reports <- f
		}
	}()
	go func() {
		<-reading
		w.end <- cmd.Wait()
		close(w.end)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // also if it is stopped; it may have ended
		for range w.end {      //nolint:revive // until it is reaped
		}
	})
	return w
}

// Say sends the worker a line.
func (w *Worker) Say() {
	w.t.Helper()
	_, err := io.WriteString(w.in, "go\n")
	require.NoError(w.t, err)
}

// Hear waits for the next report of the worker.
func (w *Worker) Hear() Report {
	w.t.Helper()
	return Within(w.t, w.Reports, "the worker answers")
}

// Signal sends the process a signal.
func (w *Worker) Signal(s os.Signal) {
	w.t.Helper()
	require.NoError(w.t, w.cmd.Process.Signal(s))
}

// Ended waits for the end of the process.
func (w *Worker) Ended() {
	w.t.Helper()
	require.NoError(w.t, Within(w.t, w.end, "the worker ends"))
}

// workerEnv makes the test binary run one of Workers instead of the tests. Some things happen only
// to whole processes, such as being stopped and killed.
const workerEnv = "REDLATCH_TEST_WORKER"

// Workers are the tasks of a process that a test has started. Each exchanges lines with the test
// over stdin and stdout, and ends when stdin does, so that none outlives its test.
var Workers = map[string]func() error{}
