package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are below the range that the kernel uses for outgoing connections. Otherwise a server that
// is down for a moment could lose its port to a client that tries to reach it, and could not come
// back.
const (
	portMin = 20000
	portMax = 32000
)

// listenLocal listens on a free port of the loopback interface.
func listenLocal() (net.Listener, error) {
	var err error
	for range 50 {
		var l net.Listener
		l, err = net.Listen("tcp", localAddr(portMin+rand.IntN(portMax-portMin)))
		if err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no free port between %d and %d: %w", portMin, portMax, err)
}

// freePort returns a port that was free a moment ago. Someone else may bind it first. The caller
// has to notice that, and asks for another port.
func freePort() (int, error) {
	l, err := listenLocal()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func localAddr(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
