package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the child when the test binary ends, for whatever reason. A
// panic, a -timeout or a SIGKILL runs no clean-up.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
