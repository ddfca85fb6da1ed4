//go:build unix

// Cast records redlatch top on a terminal, with a real server and programs that contend for locks,
// and writes an SVG that shows the screen as it changed. The picture has a dark background of its
// own, so it is readable on light and dark pages. Programs that do not animate SVGs, and readers
// who do not want motion, see one screen.
//
//	go run ./internal/cast -o ../../docs/images/top.svg
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
)

func main() {
	log.SetFlags(0)
	out := flag.String("o", "top.svg", "the file to write")
	flag.Parse()
	screens, err := record()
	if err == nil {
		err = os.WriteFile(*out, render("redlatch top", screens), 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s has %d screens.\n", *out, len(screens))
}

const (
	width  = 80
	height = 19
)

// record runs the scene, and returns each screen that differs from the one before.
func record() (screens []shot, err error) {
	dir, err := os.MkdirTemp("", "cast")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "redlatch")
	if text, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, text)
	}
	s := &scene{dir: dir}
	defer s.end()
	url, err := s.startServer()
	if err != nil {
		return nil, err
	}
	s.env = append(os.Environ(), "REDIS_URL="+url, "redlatch="+program, "TERM=xterm-256color", "COLORTERM=", "NO_COLOR=")
	for _, worker := range workers() {
		if err := s.start("bash", "-c", worker); err != nil {
			return nil, err
		}
		time.Sleep(300 * time.Millisecond) // the order of arrival
	}
	time.Sleep(3 * time.Second) // ages
	return s.watch(program)
}

// workers are scripts that contend. Each is a process with a description, as on several hosts.
func workers() (scripts []string) {
	forever := func(description, flags, name, work string) {
		scripts = append(scripts, fmt.Sprintf(`while :; do "$redlatch" run %s --description %q %s -- sleep %s; done`, flags, description, name, work))
	}
	for i, pid := range []int{4242, 977, 1203, 2840} {
		forever(fmt.Sprintf("web-%d pid %d", i+1, pid), "--fair", "orders:42", "600")
	}
	for i := range 5 {
		forever(fmt.Sprintf("render-%d", i+1), "--of 4 --permits 2", "render:gpu", "2.4")
	}
	for i, pid := range []int{51, 77} {
		forever(fmt.Sprintf("batch-%d pid %d", i+1, pid), "--fair", "reports:nightly", "4.1")
	}
	forever("host-7 pid 311", "", "cache:warm", "600")
	forever("host-8 pid 90", "", "cache:warm", "600")
	forever("cron-1 pid 12", "", "invoices:2026-11", "600")
	return scripts
}

// scene is a server and processes.
type scene struct {
	dir       string
	env       []string
	processes []*exec.Cmd
}

// start starts a process in a group of its own.
func (s *scene) start(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = s.env, s.dir, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.processes = append(s.processes, cmd)
	return nil
}

// end ends all processes. redlatch run ends its command when it gets SIGTERM.
func (s *scene) end() {
	for i := len(s.processes) - 1; i >= 0; i-- {
		group := s.processes[i].Process.Pid
		_ = syscall.Kill(-group, syscall.SIGTERM)
		_ = s.processes[i].Wait()
	}
}

func (s *scene) startServer() (url string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close()
	binary := os.Getenv("REDLATCH_REDIS_SERVER")
	if binary == "" {
		binary = "redis-server"
	}
	if err := s.start(binary, "--port", port, "--bind", "127.0.0.1", "--save", ""); err != nil {
		return "", err
	}
	return "redis://127.0.0.1:" + port, nil
}

// step is a key, and how long the screen stays before the next one.
type step struct {
	key   string
	pause time.Duration
}

var steps = []step{
	{"", 4500 * time.Millisecond},
	{"o", 2500 * time.Millisecond},
	{"\x1b[B", 900 * time.Millisecond},
	{"w", 900 * time.Millisecond},
	{"g", 700 * time.Millisecond},
	{"\r", 4500 * time.Millisecond},
	{"\x1b", 1500 * time.Millisecond},
}

// watch runs top on a terminal, and presses the keys.
func (s *scene) watch(program string) (shots []shot, err error) {
	cmd := exec.Command(program, "top")
	cmd.Env = s.env
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: width, Rows: height})
	if err != nil {
		return nil, err
	}
	defer terminal.Close()
	var mu sync.Mutex // guards the emulator
	emulator := vt.NewEmulator(width, height)
	go func() { _, _ = io.Copy(terminal, emulator) }()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := terminal.Read(buf)
			mu.Lock()
			_, _ = emulator.Write(buf[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	read := func() [][]span {
		mu.Lock()
		defer mu.Unlock()
		return spansOf(emulator)
	}
	for end := time.Now().Add(10 * time.Second); !strings.Contains(plain(read()), "by waiters"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return nil, errors.New("top shows nothing")
		}
	}
	const sample = 50 * time.Millisecond
	begin := time.Now()
	for _, step := range steps {
		if _, err := terminal.WriteString(step.key); err != nil {
			return nil, err
		}
		for end := time.Now().Add(step.pause); time.Now().Before(end); time.Sleep(sample) {
			if now := read(); len(shots) == 0 || plain(now) != plain(shots[len(shots)-1].lines) {
				shots = append(shots, shot{at: time.Since(begin), lines: now})
			}
		}
	}
	shots = append(shots, shot{at: time.Since(begin)}) // the end
	_, _ = terminal.WriteString("q")
	return shots, cmd.Wait()
}
