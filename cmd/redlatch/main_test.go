package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// beCommandEnv makes this test binary the command line program, so that the race detector sees it
// too.
const beCommandEnv = "REDLATCH_TEST_BE_COMMAND"

func TestMain(m *testing.M) {
	if isGuard(os.Args) {
		guardMain(os.Args[2:])
		return
	}
	if os.Getenv(beCommandEnv) == "1" {
		_ = os.Unsetenv(beCommandEnv)
		os.Exit(newTestApp().execute(os.Args[1:]))
	}
	time.Local = time.UTC // the screens of top have times
	unignoreSignals()
	redistest.Main(m)
}

// Settings of the program, as durations. Each test sets what it needs.
const (
	interruptsEnv = "REDLATCH_TEST_INTERRUPTS" // the time between two ^C; the program also writes noticedInterrupt
	releaseEnv    = "REDLATCH_TEST_RELEASE"    // the time for the release
	renewEnv      = "REDLATCH_TEST_RENEW"      // the time between renewals
	completeEnv   = "REDLATCH_TEST_COMPLETE"   // the time for names after the tab key
	panicEnv      = "REDLATCH_TEST_PANIC"      // no duration: the key that makes top panic

	// The text has no "interrupt", which the commands of the tests write.
	noticedInterrupt = "redlatch has dealt with ^C"
)

// newTestApp returns the program with times that a busy machine keeps.
func newTestApp() *app {
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	a.limits = limits{connect: guardTime, release: guardTime, interrupts: time.Hour, reading: guardTime, complete: guardTime, slow: time.Hour}
	read := func(name string, use func(time.Duration)) {
		if text := os.Getenv(name); text != "" {
			d, err := time.ParseDuration(text)
			if err != nil {
				panic(err)
			}
			use(d)
		}
	}
	read(interruptsEnv, func(d time.Duration) {
		a.limits.interrupts = d
		a.interrupted = func() { a.say(noticedInterrupt) }
	})
	if key := os.Getenv(panicEnv); key != "" {
		a.keyPressed = func(pressed string) {
			if pressed == key {
				panic("the key " + key)
			}
		}
	}
	read(completeEnv, func(d time.Duration) { a.limits.complete = d })
	read(releaseEnv, func(d time.Duration) { a.limits.release = d })
	read(renewEnv, func(d time.Duration) { a.options = append(a.options, redlatch.WithRenewInterval(d)) })
	return a
}

// guardTime ends a test that waits for something that does not happen.
const guardTime = time.Minute

// eventually waits until a condition holds.
func eventually(t *testing.T, condition func() bool, what string, args ...any) {
	t.Helper()
	for end := time.Now().Add(guardTime); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: "+what, args...)
		}
	}
}

// output is what a process has written.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// process is redlatch as a process of its own.
type process struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err output
	done     chan struct{}
}

// command makes a process that was not started. The environment has nothing that says where Redis
// is, except env. It has a session of its own: otherwise redlatch would use the terminal from which
// somebody runs the tests.
func command(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...), done: make(chan struct{})}
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "REDIS_") && !strings.HasPrefix(pair, "REDLATCH_") {
			p.cmd.Env = append(p.cmd.Env, pair)
		}
	}
	p.cmd.Env = append(append(p.cmd.Env, beCommandEnv+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	p.cmd.SysProcAttr = ownSession()
	p.cmd.WaitDelay = guardTime // a process that stays must not keep the test waiting for its output
	return p
}

func (p *process) start() *process {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Start())
	go func() { defer close(p.done); _ = p.cmd.Wait() }()
	p.t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.done })
	return p
}

// start runs redlatch on a server.
func start(t *testing.T, url string, args ...string) *process {
	t.Helper()
	return command(t, []string{"REDIS_URL=" + url}, args...).start()
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(guardTime):
		p.t.Fatalf("%v does not end; output %q, errors %q", p.cmd.Args[1:], p.out.String(), p.err.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) awaitOut(text string) {
	p.t.Helper()
	eventually(p.t, func() bool { return strings.Contains(p.out.String(), text) }, "%q in the output; errors %q", text, &p.err)
}

func (p *process) awaitErr(text string) {
	p.t.Helper()
	eventually(p.t, func() bool { return strings.Contains(p.err.String(), text) }, "%q in the errors", text)
}

// result is what a finished process left.
type result struct {
	code     int
	out, err string
}

func runIn(t *testing.T, env []string, args ...string) result {
	t.Helper()
	p := command(t, env, args...).start()
	return result{p.wait(), p.out.String(), p.err.String()}
}

func run(t *testing.T, url string, args ...string) result {
	t.Helper()
	return runIn(t, []string{"REDIS_URL=" + url}, args...)
}

func newLocks(t *testing.T, rdb redis.UniversalClient, options ...redlatch.Option) *redlatch.Client {
	t.Helper()
	locks, err := redlatch.New(rdb, append([]redlatch.Option{redlatch.WithDescription("the test")}, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

// runningTestBinary is this program, which is the command line if beCommandEnv is set.
func runningTestBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

func TestTheVersion(t *testing.T) {
	t.Parallel()
	got := run(t, "", "--version")
	require.Equal(t, 0, got.code, got.err)
	require.Regexp(t, `^redlatch (devel|v\d\S*)\n$`, got.out)
	require.Contains(t, run(t, "redis://127.0.0.1:1", "run", "x", "-v").err, "need a name", "run has a flag -v of its own")
	require.Equal(t, 64, run(t, "", "-v").code)
}

func TestErrorsNameFlagsAndNoOptions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	hold, err := newLocks(t, server.Client(t)).Mutex("x").Lock(t.Context())
	require.NoError(t, err)
	for flag, args := range map[string][]string{
		"--lease": {"run", "y", "--lease", "1ms", "--", "true"}, "--max-hold": {"run", "y", "--max-hold", "1ms", "--", "true"},
		"--description": {"run", "y", "--description", "a\tb", "--", "true"}, "--prefix": {"ls", "--prefix", "a{"},
		"--wait": {"run", "x", "-w", "100ms", "--", "true"},
	} {
		got := run(t, server.URL(), args...)
		require.NotZero(t, got.code)
		require.Contains(t, got.err, "("+flag+")")
		require.NotContains(t, got.err, "With")
	}
	runtime.KeepAlive(hold)
}
