//go:build !unix

package redistest

import "os"

// There are no job-control signals here. Interrupt is one that os.Process
// refuses to send, so that a test which pauses a server fails and says why.
var signalPause, signalResume = os.Interrupt, os.Interrupt
