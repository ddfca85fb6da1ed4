package redlatchtest

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// conn is a pipe to the server that go-redis can check before it uses it again. go-redis asks the
// socket of an idle TCP connection whether the other side has closed it. A pipe has no socket. Without
// conn, the first command after Down would be written, and its call would end with ErrIndeterminate.
type conn struct {
	net.Conn
	server *Server
	outage int64 // the number of outages before it was made
}

// dialer makes the connections of dial checkable.
func (s *Server) dialer(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		outage := s.outages.Load()
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &conn{c, s, outage}, nil
	}
}

// SyscallConn implements syscall.Conn for the check of go-redis.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if c.outage != c.server.outages.Load() {
		return nil, net.ErrClosed
	}
	return openConn{}, nil
}

// openConn is the socket of a connection that is open, with nothing to read.
type openConn struct{}

func (openConn) Control(func(fd uintptr)) error           { return errors.ErrUnsupported }
func (openConn) Read(func(fd uintptr) (done bool)) error  { return nil }
func (openConn) Write(func(fd uintptr) (done bool)) error { return errors.ErrUnsupported }
