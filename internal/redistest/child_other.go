//go:build !linux

package redistest

import "os/exec"

// dieWithParent does nothing: only Linux ties a child to its parent's life.
// Elsewhere a test binary that is killed may leave its server behind.
func dieWithParent(*exec.Cmd) {}
