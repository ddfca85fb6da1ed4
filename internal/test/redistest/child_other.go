//go:build !linux

package redistest

import "os/exec"

// dieWithParent does nothing, because only Linux can kill a child when its parent ends. On other
// systems, a test binary that is killed may leave its server behind.
func dieWithParent(*exec.Cmd) {}
