package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the child when the test binary dies,
// however it dies: a panic, a -timeout or a SIGKILL runs no clean-up.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
