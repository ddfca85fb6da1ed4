//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// guardArg is the first argument of the guard. The user never sees it, except in ps.
const guardArg = "__guard"

func isGuard(args []string) bool { return len(args) == 3 && args[1] == guardArg }

// guard is a process in the group of the command. It notices a ^C, which a terminal sends to that
// group only. It also notices if redlatch dies without ending the command, and then ends the whole
// group.
type guard struct {
	cmd        *exec.Cmd
	group      int
	alive      *os.File // closed when redlatch dies
	interrupts chan struct{}
}

const (
	guardReady     = 'r'
	guardInterrupt = 'i'
	guardEnd       = 'e'
)

// startGuard returns when the guard is ready.
func startGuard(grace time.Duration) (*guard, error) {
	path, err := selfPath()
	if err != nil {
		return nil, err
	}
	aliveRead, aliveWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	noticeRead, noticeWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, aliveRead.Close(), aliveWrite.Close())
	}
	cmd := &exec.Cmd{
		Path: path, Args: []string{"redlatch", guardArg, grace.String()}, ExtraFiles: []*os.File{aliveRead, noticeWrite},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	err = cmd.Start()
	_ = aliveRead.Close()
	_ = noticeWrite.Close()
	if err != nil {
		return nil, errors.Join(err, aliveWrite.Close(), noticeRead.Close())
	}
	g := &guard{cmd: cmd, group: cmd.Process.Pid, alive: aliveWrite, interrupts: make(chan struct{}, 16)}
	var notice [1]byte
	if _, err := noticeRead.Read(notice[:]); err != nil || notice[0] != guardReady {
		g.end()
		return nil, fmt.Errorf("it ended: %w", err)
	}
	go g.read(noticeRead)
	return g, nil
}

func (g *guard) read(notices *os.File) {
	defer notices.Close()
	var notice [1]byte
	for {
		if _, err := notices.Read(notice[:]); err != nil {
			return
		}
		select {
		case g.interrupts <- struct{}{}:
		default: // there are enough
		}
	}
}

// end ends the guard, and leaves the rest of the group alone.
func (g *guard) end() {
	_, _ = g.alive.Write([]byte{guardEnd})
	_ = syscall.Kill(g.group, syscall.SIGCONT) // somebody may have stopped it
	_ = g.cmd.Wait()
	_ = g.alive.Close()
}

// guardMain is the main function of the guard. It ends by a message, or when redlatch has died.
func guardMain(args []string) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGPIPE)
	alive, notices := os.NewFile(3, "alive"), os.NewFile(4, "notices")
	grace, err := time.ParseDuration(args[0])
	if err != nil || alive == nil || notices == nil {
		os.Exit(exitUsage)
	}
	go func() {
		for s := range signals {
			if s == syscall.SIGINT {
				_, _ = notices.Write([]byte{guardInterrupt})
			}
		}
	}()
	_, _ = notices.Write([]byte{guardReady})
	var message [1]byte
	if n, _ := alive.Read(message[:]); n == 1 {
		return // redlatch ends in an orderly way
	}
	endGroup(grace)
}

// endGroup ends the group of this process, and this process with it.
func endGroup(grace time.Duration) {
	_ = syscall.Kill(0, syscall.SIGTERM)
	_ = syscall.Kill(0, syscall.SIGCONT)
	time.Sleep(grace)
	_ = syscall.Kill(0, syscall.SIGKILL)
}
