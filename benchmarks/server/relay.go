package server

import (
	"net"
	"time"
)

// Relay forwards connections to addr with the delay of way in each direction, as a network does.
func Relay(addr string, way time.Duration) (near string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				_ = near.Close()
				continue
			}
			go carry(far, near, way)
			go carry(near, far, way)
		}
	}()
	return l.Addr().String(), func() { _ = l.Close() }, nil
}

// carry copies the data, and delays each piece by way.
func carry(to, from net.Conn, way time.Duration) {
	type piece struct {
		due  time.Time
		data []byte
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		for {
			data := make([]byte, 64<<10)
			n, err := from.Read(data)
			if err != nil {
				return
			}
			pieces <- piece{time.Now().Add(way), data[:n]}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
	for range pieces {
	}
}
