package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are drawn from below the range the kernel hands to outgoing
// connections. A server that is down for a moment would otherwise lose its port
// to one of the very clients that try to reach it, and could not come back.
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

// freePort names a port that was free a moment ago. Whoever binds it may come
// second, has to notice, and asks for another.
func freePort() (int, error) {
	l, err := listenLocal()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func localAddr(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
