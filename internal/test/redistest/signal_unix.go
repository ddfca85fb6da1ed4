//go:build unix

package redistest

import "syscall"

const (
	signalPause  = syscall.SIGSTOP
	signalResume = syscall.SIGCONT
)
