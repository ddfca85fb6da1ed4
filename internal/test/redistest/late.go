package redistest

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// late has the commands that one connection sent and the server has not got yet, with the login
// that they need.
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

// add takes a further command, unless the others have been sent. Then the command is lost, as it
// would be behind a segment that was lost for ever.
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

// send sends the commands to the server, and returns one reply each. If the connection fails, the
// error is the last reply.
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
