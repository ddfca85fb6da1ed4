package pubsub

import "time"

type verb int

const (
	subscribe verb = iota
	unsubscribe
	ping
)

// command is what the commander sends. It is over when the server has answered all of it.
type command struct {
	verb     verb
	channels []*channel
	left     int    // confirmations still to come
	nonce    string // of a ping
	sent     time.Time
}

func (c *command) names() []string {
	names := make([]string, len(c.channels))
	for i, ch := range c.channels {
		names[i] = ch.name
	}
	return names
}
