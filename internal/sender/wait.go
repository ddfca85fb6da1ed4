package sender

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Wait is a WAIT after a command: the server answers when so many replicas have the writes of that
// command, or when the time is over.
type Wait struct {
	Key      string // of the command: its master is asked
	Replicas int
	Timeout  time.Duration // at least a millisecond
}

// sendAndWait sends a command and its WAIT together. WAIT is about the writes of its own
// connection, so both take one that is theirs alone, even if a hook sends the commands of a
// pipeline one by one. A cluster client would send WAIT to any node. The server waits no longer
// than the caller does.
func (s *Sender) sendAndWait(c *command) error {
	master, err := s.cfg.Master(c, c.wait.Key)
	if err != nil {
		return err
	}
	conn := master.Conn()
	defer conn.Close()
	within := max(min(c.wait.Timeout, time.Until(c.end)), time.Millisecond) // 0 would be for ever
	wait := redis.NewIntCmd(c, "wait", c.wait.Replicas, within.Milliseconds())
	pipe := conn.Pipeline()
	_, _ = pipe.Process(c, c.cmd), pipe.Process(c, wait)
	_, err = pipe.Exec(c)
	c.acknowledged = int(wait.Val())
	return err
}
