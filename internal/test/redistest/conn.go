package redistest

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// pipeConn makes the client's end of a net.Pipe fail as a TCP connection does. go-redis sends a
// command again after a broken connection, but gives up after errors that it does not know, such as
// io.ErrClosedPipe. Without pipeConn, virtual clients would retry less than real ones.
//
// One difference remains. go-redis checks an idle TCP connection before it uses it, but cannot
// check this one. If the connection was closed while idle, the next command finds that out.
type pipeConn struct {
	net.Conn
	closed atomic.Bool // by the client itself
}

func (c *pipeConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = &net.OpError{Op: "write", Net: "pipe", Err: c.cause()}
	}
	return n, err
}

// A socket accepts deadlines whatever the other side has done, but a pipe does not.

func (c *pipeConn) SetDeadline(t time.Time) error     { return c.unlessGone(c.Conn.SetDeadline(t)) }
func (c *pipeConn) SetReadDeadline(t time.Time) error { return c.unlessGone(c.Conn.SetReadDeadline(t)) }
func (c *pipeConn) SetWriteDeadline(t time.Time) error {
	return c.unlessGone(c.Conn.SetWriteDeadline(t))
}

func (c *pipeConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

func (c *pipeConn) unlessGone(err error) error {
	if err != nil && !c.closed.Load() {
		return nil
	}
	return err
}

func (c *pipeConn) cause() error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	return syscall.EPIPE
}
