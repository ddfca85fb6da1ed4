package redistest

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// late is what one connection sent and the server has yet to see: the tail of a
// conversation, with the login it takes to be heard.
type late struct {
	dial  func() (net.Conn, error)
	login []command

	mu       sync.Mutex
	commands []command
	sent     bool
}

func (l *late) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.commands)
}

// add takes a further command, unless the rest has been sent: what comes then
// is lost, as it would be behind a segment that was lost for good.
func (l *late) add(cmd command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.sent {
		l.commands = append(l.commands, cmd)
	}
}

func (l *late) take() []command {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = true
	return l.commands
}

// send plays the commands to the server and returns one reply each. The first
// failure of the connection is the last reply.
func (l *late) send() []any {
	conn, err := l.dial()
	if err != nil {
		return []any{err}
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(readyWithin))
	r := bufio.NewReader(conn)
	for _, cmd := range l.login {
		if _, err := ask(conn, r, cmd); err != nil {
			return []any{err}
		}
	}
	var replies []any
	for _, cmd := range l.take() {
		reply, err := ask(conn, r, cmd)
		if err != nil {
			return append(replies, err)
		}
		replies = append(replies, reply)
	}
	return replies
}

func ask(conn net.Conn, r *bufio.Reader, cmd command) (any, error) {
	if _, err := conn.Write(cmd.raw); err != nil {
		return nil, err
	}
	f, err := readFrame(r)
	return f.value, err
}
