//go:build !unix

package redistest

import "os"

// These systems have no job-control signals. os.Process refuses to send Interrupt, so a test that
// pauses a server fails with a reason.
var signalPause, signalResume = os.Interrupt, os.Interrupt
