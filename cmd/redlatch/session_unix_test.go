//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// unignoreSignals gives the processes of the tests the default action of each signal. Under
// nohup(1) they would ignore SIGHUP, and so would redlatch. This process goes on to ignore it.
func unignoreSignals() {
	for _, s := range forwarded {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}
