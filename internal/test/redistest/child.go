package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// child is one run of the server program, from its start to its end.
type child struct {
	cmd  *exec.Cmd
	log  string
	dead chan struct{} // closed when the process has been reaped
}

// startChild runs the program in dir, and returns when it has a pid. It appends the output to a
// file there, for the message of a test that fails.
func startChild(path, dir string, args []string) (*child, error) {
	c := &child{
		cmd:  exec.Command(path, args...),
		log:  filepath.Join(dir, "server.log"),
		dead: make(chan struct{}),
	}
	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own copy
	c.cmd.Dir, c.cmd.Stdout, c.cmd.Stderr = dir, out, out
	dieWithParent(c.cmd)

	started := make(chan error)
	go c.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return c, nil
}

// run starts the process and waits for its end. The kernel takes the *thread* that started the
// child as its parent, so run keeps the thread until then. If the thread ended earlier, the kernel
// would kill the server in the middle of a test.
func (c *child) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.dead)
	err := c.cmd.Start()
	started <- err
	if err == nil {
		_ = c.cmd.Wait() // the log says how it ended
	}
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) signal(s os.Signal) error { return c.cmd.Process.Signal(s) }

// kill ends the process so that it cannot save anything, also if it is paused. It returns when the
// process is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // fails only if it is dead already
	<-c.dead
}

func (c *child) isDead() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

// lastWords returns the end of the server's log.
func (c *child) lastWords() string {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	const enough = 2000
	return string(text[max(0, len(text)-enough):])
}
