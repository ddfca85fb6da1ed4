package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// readyWithin limits the time that a server may take to answer, or to end on request. Only a broken
// server takes all of it.
const readyWithin = 20 * time.Second

// Server is a real server, Redis or Valkey, that runs as a child process on the loopback interface.
// It belongs to the test that started it, and fails that test if it cannot do what the test asks.
type Server struct {
	t       testing.TB // nil for the shared server, which no test may disturb
	binary  binary
	dir     string
	port    int
	args    []string
	child   *child
	control *redis.Client
}

// Start runs a server of the test's own, without persistence, and returns when it answers. Further
// args override the defaults. They are one word each, as 6.2 requires: "--appendonly", "yes",
// "--save", "3600", "1". The server is killed when the test ends. It costs about 20 ms. A test that
// needs only names of its own uses Shared.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, binary: findBinary(t), dir: t.TempDir(), args: args}
	t.Cleanup(s.end)
	if err := s.startOnFreePort(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Addr is host:port. It stays the same over every Restart.
func (s *Server) Addr() string { return localAddr(s.port) }

// URL is the address in the form that redis.ParseURL reads.
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

// Dir is the working directory of the server, with its files.
func (s *Server) Dir() string { return s.dir }

// Kind is "redis" or "valkey".
func (s *Server) Kind() string { return s.binary.kind }

// Version is the version that the server reports, such as "7.0.15".
func (s *Server) Version() string { return s.binary.version }

// RunID is the server's name for its current run. It changes with a restart.
func (s *Server) RunID() string {
	info, err := s.info()
	if err != nil {
		s.fail("run id: %v", err)
	}
	return info["run_id"]
}

// Client returns a go-redis client. It has default options except for the changes of mods. It is
// closed when the test ends.
func (s *Server) Client(t testing.TB, mods ...func(*redis.Options)) *redis.Client {
	t.Helper()
	return newClient(t, s.Addr(), mods)
}

// Control returns a connection of the operator, for CONFIG SET, DEBUG, CLIENT PAUSE or ACL. It logs
// in as a user of its own, so that requirepass and ACL rules for the default user do not lock it
// out. It never sends anything twice. CLIENT PAUSE ALL, Pause, and a server without free
// connections do block it.
func (s *Server) Control() *redis.Client { return s.control }

// Pause stops the server as SIGSTOP does. Connections stay open, nobody answers, and the clock of
// the server runs on.
func (s *Server) Pause() {
	s.mine("Pause")
	if err := s.child.signal(signalPause); err != nil {
		s.fail("pause: %v", err)
	}
}

// Resume undoes Pause.
func (s *Server) Resume() {
	s.mine("Resume")
	if err := s.child.signal(signalResume); err != nil {
		s.fail("resume: %v", err)
	}
}

// Kill ends the server immediately, as a crash does. It returns when the server is gone.
func (s *Server) Kill() {
	s.mine("Kill")
	s.child.kill()
}

// Stop asks the server to end, so that it can save what it is configured to save. It returns when
// the server is gone.
func (s *Server) Stop() {
	s.mine("Stop")
	if s.child.isDead() {
		return
	}
	_ = s.child.signal(signalResume) // a paused process does not get SIGTERM
	_ = s.child.signal(syscall.SIGTERM)
	select {
	case <-s.child.dead:
	case <-time.After(readyWithin):
		s.child.kill()
		s.fail("server did not end within %s of SIGTERM, was killed: %s", readyWithin, s.child.lastWords())
	}
}

// Restart starts the server again on the same port and directory, and returns when it answers. If
// the server runs, Restart kills it first.
func (s *Server) Restart() {
	s.Relaunch()
	if err := s.awaitReady(func(err error) bool { return err == nil }); err != nil {
		s.fail("restart: %v", err)
	}
}

// Relaunch is Restart without waiting for the data. It returns when the server answers anything,
// even LOADING.
func (s *Server) Relaunch() {
	s.mine("Restart")
	s.child.kill()
	if err := s.launch(); err != nil {
		s.fail("restart: %v", err)
	}
	answered := func(err error) bool {
		var refusal redis.Error
		return err == nil || errors.As(err, &refusal)
	}
	if err := s.awaitReady(answered); err != nil {
		s.fail("restart: %v", err)
	}
}

// end is the clean-up. No process and no connection remains.
func (s *Server) end() {
	if s.control != nil {
		_ = s.control.Close()
	}
	if s.child != nil {
		s.child.kill()
	}
}

// startOnFreePort tries ports until the server could bind one, because other test binaries look for
// ports at the same time.
func (s *Server) startOnFreePort() error {
	var errs []error
	for range 5 {
		err := s.startOnce()
		if err == nil {
			return nil
		}
		s.end()
		errs = append(errs, err)
	}
	return fmt.Errorf("no server: %w", errors.Join(errs...))
}

func (s *Server) startOnce() (err error) {
	if s.port, err = freePort(); err != nil {
		return err
	}
	s.control = redis.NewClient(s.controlOptions())
	if err := s.launch(); err != nil {
		return err
	}
	return s.awaitReady(func(err error) bool { return err == nil })
}

func (s *Server) launch() (err error) {
	s.child, err = startChild(s.binary.path, s.dir, s.commandLine())
	return err
}

const (
	controlUser     = "redistest-control"
	controlPassword = "of-no-worth"
)

func (s *Server) commandLine() []string {
	line := []string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--appendonly", "no",
		"--user", controlUser, "on", ">" + controlPassword, "~*", "&*", "+@all",
	}
	if s.binary.hasProtectedConfigs() {
		line = append(line, "--enable-debug-command", "yes", "--enable-protected-configs", "yes")
	}
	return slices.Concat(line, s.args)
}

func (s *Server) controlOptions() *redis.Options {
	return &redis.Options{
		Addr:       s.Addr(),
		Username:   controlUser,
		Password:   controlPassword,
		MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

// awaitReady sends PING until the answer is good enough. It also checks which server answers. After
// a lost race for the port, it would be another server.
func (s *Server) awaitReady(good func(error) bool) error {
	var err error
	for end := time.Now().Add(readyWithin); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if s.child.isDead() {
			return fmt.Errorf("%s on port %d died: %s", s.binary.path, s.port, s.child.lastWords())
		}
		if err = s.control.Ping(context.Background()).Err(); good(err) {
			return s.checkPid()
		}
	}
	return fmt.Errorf("%s on port %d does not answer: %w", s.binary.path, s.port, err)
}

func (s *Server) checkPid() error {
	info, err := s.info()
	if err != nil {
		return err
	}
	if info["process_id"] != strconv.Itoa(s.child.pid()) {
		return fmt.Errorf("port %d belongs to process %s, not to our %d", s.port, info["process_id"], s.child.pid())
	}
	return nil
}

// info is the server section of INFO, which the server also answers while it loads.
func (s *Server) info() (map[string]string, error) {
	text, err := s.control.Info(context.Background(), "server").Result()
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[k] = v
		}
	}
	return info, nil
}

// mine refuses to disturb the shared server. It panics, because such a test would break other tests
// that run beside it and have done nothing wrong.
func (s *Server) mine(verb string) {
	if s.t == nil {
		panic("redistest: " + verb + " on the shared server; use Start")
	}
	s.t.Helper()
}

func (s *Server) fail(format string, args ...any) {
	if s.t == nil {
		panic(fmt.Sprintf("redistest: shared server: "+format, args...))
	}
	s.t.Helper()
	s.t.Fatalf("redistest: "+format, args...)
}
