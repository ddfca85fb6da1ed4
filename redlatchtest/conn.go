package redlatchtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// conn is a pipe to the server that go-redis can check before it uses it again. go-redis asks the
// socket of an idle TCP connection whether the other side has closed it. A pipe has no socket.
// Without conn, the first command after Down would be written, and its call would end with
// ErrIndeterminate.
type conn struct {
	net.Conn
	server *Server
	outage int64 // the number of outages before it was made
}

// dialer makes the connections of dial checkable. While the server is down, it makes connections
// that carry nothing. go-redis counts failed dials: after PoolSize of them it dials no more, and
// starts a goroutine that tries once a second. In a bubble that goroutine outlives the test. So no
// dial fails, and refuse reports the outage at the next step, the handshake.
func (s *Server) dialer(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		outage := s.outages.Load()
		c, err := dial(ctx, network, addr)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return newRefusedConn(err), nil
		}
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

// refuse is the credentials provider of the program's client. go-redis asks for credentials first
// on a new connection. While the server is down, refuse returns the error of a refused dial. So
// callers know that nothing was sent.
func (s *Server) refuse(context.Context) (username, password string, err error) {
	if s.isDown() {
		return "", "", &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	}
	return "", "", nil
}

// refusedConn is a connection that was refused.
type refusedConn struct {
	net.Conn // one end of a pipe without another end
	err      error
}

func newRefusedConn(err error) net.Conn {
	ours, theirs := net.Pipe()
	_ = theirs.Close()
	return refusedConn{ours, err}
}

// Write is called only if the server is up again before the handshake. go-redis returns what the
// error wraps.
func (c refusedConn) Write([]byte) (int, error) { return 0, fmt.Errorf("redlatchtest: %w", c.err) }

// A pipe without another end refuses deadlines too, and with another error.

func (refusedConn) SetDeadline(time.Time) error      { return nil }
func (refusedConn) SetReadDeadline(time.Time) error  { return nil }
func (refusedConn) SetWriteDeadline(time.Time) error { return nil }

// SyscallConn implements syscall.Conn for the check of go-redis, which then drops the connection.
func (refusedConn) SyscallConn() (syscall.RawConn, error) { return nil, net.ErrClosed }
