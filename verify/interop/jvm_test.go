package interop_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// requireEnv is set by make interop, which has built the driver.
const requireEnv = "REDLATCH_REQUIRE_INTEROP"

// jvm is a Java process with the real Redisson; see driver/.
type jvm struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr *os.File
	dead   chan struct{} // closed when its output has ended

	mu    sync.Mutex
	calls map[int]chan<- reply
	last  int
}

// reply is the answer of the driver to one call.
type reply struct {
	begun, ended time.Time // by the clock of the machine
	value        string
	err          string // class and message of a Java exception
}

var shared = sync.OnceValues(startJVM)

// java returns the Java process that the tests share. If make interop does not run the tests, java
// skips the test, and says so.
func java(t testing.TB) *jvm {
	t.Helper()
	needJava(t)
	j, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func needJava(t testing.TB) {
	t.Helper()
	if os.Getenv(requireEnv) != "1" {
		t.Skip("left out: what needs the real Redisson; make interop builds and runs it")
	}
}

// ownJava starts a Java process that a test may kill.
func ownJava(t testing.TB) *jvm {
	t.Helper()
	needJava(t)
	j, err := startJVM()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.kill)
	return j
}

func startJVM() (*jvm, error) {
	j := &jvm{calls: map[int]chan<- reply{}, dead: make(chan struct{})}
	classes := filepath.Join("driver", "target", "classes") + ":" + filepath.Join("driver", "target", "lib", "*")
	j.cmd = exec.Command("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes, "redlatch.Driver")
	var err error
	if j.stderr, err = os.CreateTemp("", "redlatch-interop-*.log"); err != nil {
		return nil, err
	}
	_ = os.Remove(j.stderr.Name()) // an open file stays readable
	j.cmd.Stderr = j.stderr
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := j.cmd.Start(); err != nil {
		return nil, fmt.Errorf("java: %w", err)
	}
	go j.read(out)
	return j, nil
}

// read delivers the driver's answers to the callers that wait for them, until the output ends.
func (j *jvm) read(out io.Reader) {
	defer close(j.dead)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		words := strings.SplitN(lines.Text(), " ", 5)
		if len(words) < 5 {
			continue // not an answer, but the output of a library
		}
		id, err := strconv.Atoi(words[0])
		if err != nil {
			continue
		}
		r := reply{begun: micros(words[1]), ended: micros(words[2])}
		if words[3] == "ok" {
			r.value = words[4]
		} else {
			r.err = words[4]
		}
		j.mu.Lock()
		call := j.calls[id]
		delete(j.calls, id)
		j.mu.Unlock()
		if call != nil {
			call <- r
		}
	}
	_ = j.cmd.Wait()
}

func micros(word string) time.Time {
	n, _ := strconv.ParseInt(word, 10, 64)
	return time.UnixMicro(n)
}

// send starts a call. Its answer comes over the channel.
func (j *jvm) send(words ...string) <-chan reply {
	answer := make(chan reply, 1)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	j.calls[j.last] = answer
	_, _ = fmt.Fprintln(j.in, j.last, strings.Join(words, " ")) // the caller that waits notices a dead process
	return answer
}

// kill ends the process as kill -9 does, and returns when it is gone.
func (j *jvm) kill() {
	_ = j.cmd.Process.Kill()
	<-j.dead
}

// lastWords returns the end of the process's output on stderr.
func (j *jvm) lastWords() string {
	text := make([]byte, 1<<20)
	n, _ := j.stderr.ReadAt(text, 0)
	return string(text[max(0, n-4000):n])
}
