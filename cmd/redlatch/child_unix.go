//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that the command gets if redlatch gets them.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGWINCH,
}

// catchSignals returns a channel that gets the signals to forward. A signal that the parent
// ignores, for instance by nohup, stays ignored, also for the command.
func catchSignals() chan os.Signal {
	signals := make(chan os.Signal, 32)
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	return signals
}

// endsWait reports whether a signal ends redlatch while it waits for the lock.
func endsWait(s os.Signal) bool { return s != syscall.SIGCONT && s != syscall.SIGWINCH }

// signalNumber returns the number that an exit code has.
func signalNumber(s os.Signal) int {
	number, _ := s.(syscall.Signal)
	return int(number)
}

// change is a change of the state of the command.
type change struct {
	status syscall.WaitStatus
	err    error
}

// child is the command, in a process group with its guard. No method but wait blocks.
type child struct {
	pid, group int
	guard      *guard
	terminal   *terminal // nil: the command has none, or redlatch is in the background
	changes    chan change
	interrupts chan struct{} // a SIGINT for the group, as the guard notices it
	reaped     sync.WaitGroup

	needsTerminal bool // it is stopped until redlatch comes to the foreground
}

// startChild starts a command. The path was found before. If redlatch has the terminal, the command
// gets it.
func startChild(path string, args, env []string, grace time.Duration) (*child, error) {
	g, err := startGuard(grace)
	if err != nil {
		return nil, fmt.Errorf("the process that watches the command does not start: %w", err)
	}
	c := &child{guard: g, group: g.group, terminal: openTerminal(), changes: make(chan change, 16), interrupts: g.interrupts}
	cmd := &exec.Cmd{Path: path, Args: args, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: c.group}
	if c.terminal != nil {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, int(c.terminal.file.Fd())
	}
	if err := cmd.Start(); err != nil {
		c.terminal.takeBack()
		g.end()
		return nil, err
	}
	c.pid = cmd.Process.Pid
	c.reaped.Go(c.wait)
	return c, nil
}

// wait reports each stop and the end of the command. exec.Cmd does not report stops.
func (c *child) wait() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.pid, &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		c.changes <- change{status, err}
		if err != nil || !status.Stopped() {
			return
		}
	}
}

// signal sends a signal to the whole group.
func (c *child) signal(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(-c.group, number)
	}
}

// terminate asks the group to end, also if it is stopped.
func (c *child) terminate() {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT)
}

// kill ends the group. The guard ends too.
func (c *child) kill() { c.signal(syscall.SIGKILL) }

// onStop is called when the command has stopped. ^Z does nothing, because a command that is stopped
// would keep the lock from everybody. Other stops are left alone.
func (c *child) onStop(s syscall.Signal) (message string) {
	c.needsTerminal = false
	switch {
	case s == syscall.SIGTSTP:
		c.signal(syscall.SIGCONT)
		return "the command goes on, because a stopped command would keep the lock"
	case (s == syscall.SIGTTIN || s == syscall.SIGTTOU) && c.resume():
		return ""
	case s == syscall.SIGTTIN || s == syscall.SIGTTOU:
		c.needsTerminal = true
		return "the command is stopped, because it needs the terminal and redlatch is in the background"
	}
	return ""
}

// resume gives the terminal to the command if redlatch has it now, for instance after fg in the
// shell.
func (c *child) resume() bool {
	if c.terminal == nil {
		c.terminal = openTerminal()
	}
	if !c.terminal.give(c.group) {
		return false
	}
	c.signal(syscall.SIGCONT)
	return true
}

// isTyped reports whether a SIGINT may be a ^C that the user meant for the command as a whole. A
// program that edits a line, such as a shell, has ^C for itself.
func (c *child) isTyped() bool { return c.terminal == nil || c.terminal.isCanonical() }

// finish takes the terminal back, and ends the guard. Processes that the command left behind go on.
func (c *child) finish() {
	c.reaped.Wait()
	c.guard.end()
	c.terminal.takeBack()
}

// awaitGroup returns when no process of the group is left, or after the time. It reports whether
// the group has ended.
func (c *child) awaitGroup(timeout <-chan time.Time) bool {
	const pause = 20 * time.Millisecond
	for {
		_, _ = syscall.Wait4(-c.group, nil, syscall.WNOHANG, nil) // orphans, if redlatch is the first process of a container
		if err := syscall.Kill(-c.group, 0); errors.Is(err, syscall.ESRCH) {
			return true
		}
		select {
		case <-timeout:
			return false
		case <-time.After(pause):
		}
	}
}

// dieOf ends redlatch like a command that ^C has ended. A shell goes on with its script unless its
// child died of the signal. The other processes of the job get the signal too, because the terminal
// did not send it to them.
func (c *child) dieOf(status syscall.WaitStatus) {
	if c.terminal == nil || !status.Signaled() || status.Signal() != syscall.SIGINT {
		return
	}
	signal.Reset(syscall.SIGINT)
	_ = syscall.Kill(0, syscall.SIGINT)
	time.Sleep(10 * time.Second) // the signal comes before
}

// terminal is the terminal that redlatch had when it started the command.
type terminal struct {
	file  *os.File
	group int // of redlatch
	state *unix.Termios
}

// openTerminal returns the controlling terminal if redlatch is in its foreground, and nil
// otherwise.
func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	fd, group := int(file.Fd()), unix.Getpgrp()
	foreground, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || foreground != group {
		_ = file.Close()
		return nil
	}
	state, _ := unix.IoctlGetTermios(fd, getTermios)
	return &terminal{file, group, state}
}

// give makes a group the foreground of the terminal, if redlatch is.
func (t *terminal) give(group int) bool {
	if t == nil {
		return false
	}
	fd := int(t.file.Fd())
	foreground, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || foreground != t.group && foreground != group {
		return false
	}
	return setForeground(fd, group) == nil
}

// takeBack makes redlatch the foreground again, with the settings that the terminal had.
func (t *terminal) takeBack() {
	if t == nil {
		return
	}
	fd := int(t.file.Fd())
	if setForeground(fd, t.group) == nil && t.state != nil {
		signal.Ignore(syscall.SIGTTOU)
		_ = unix.IoctlSetTermios(fd, setTermios, t.state)
		signal.Reset(syscall.SIGTTOU)
	}
	_ = t.file.Close()
}

// setForeground works from the background too, where it would otherwise stop this process.
func setForeground(fd, group int) error {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	return unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, group)
}

// isCanonical reports whether the terminal edits lines itself.
func (t *terminal) isCanonical() bool {
	state, err := unix.IoctlGetTermios(int(t.file.Fd()), getTermios)
	return err != nil || state.Lflag&unix.ICANON != 0
}
