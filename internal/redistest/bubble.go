package redistest

import (
	"context"
	"net"
	"slices"
	"syscall"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Virtual is an embedded server in virtual time, behind a proxy. There is no
// TCP in it: a goroutine that waits for a socket keeps a bubble's clock from
// moving, one that waits for a pipe does not.
type Virtual struct {
	*Proxy
	Server *miniredis.Miniredis
}

// Bubble makes a server for the testing/synctest bubble it is called in, and
// has it end with that bubble's test. time.Sleep moves its clock and expires
// its keys; SetTime and FastForward of Server fake faults of its clock. Down is
// its outage: a closed miniredis starts again by itself when it is dialled.
//
// The rules of bubbles hold for what is tested: nothing made outside, no
// package-level timers or pools, no I/O or sleep under a mutex, no t.Run. Close
// what uses a client before the test ends; clients close by themselves.
func Bubble(t TB) *Virtual {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	v := &Virtual{Proxy: newProxy(t, m.Dial), Server: m}
	v.startServer()
	return v
}

// Another is a second way to the same server, with faults of its own: the link of
// another machine.
func (v *Virtual) Another() *Virtual {
	return &Virtual{Proxy: newProxy(v.t, v.Server.Dial), Server: v.Server}
}

// Replica is another server that lacks what this one has, and refuses writes, as a
// replica does that has not caught up.
func (v *Virtual) Replica() *Virtual {
	v.t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	v.t.Cleanup(m.Close)
	r := &Virtual{Proxy: newProxy(v.t, m.Dial), Server: m}
	r.startServer()
	m.Server().SetPreHook(func(peer *server.Peer, cmd string, _ ...string) (done bool) {
		if slices.Contains(writes, cmd) {
			peer.WriteError("READONLY You can't write against a read only replica.")
			return true
		}
		return false
	})
	return r
}

// writes are the commands of scripts, and of tests, that a replica refuses.
var writes = []string{
	"DEL", "HDEL", "HINCRBY", "HSET", "INCR", "PERSIST", "PEXPIRE", "SET", "UNLINK", "ZADD", "ZREM", "ZREMRANGEBYSCORE",
}

// SwitchTo leads the clients of this link to another server: connections end, and new
// ones go there. SwitchBack leads them back.
func (v *Virtual) SwitchTo(other *Virtual) { v.lead(other.Server.Dial) }

// SwitchBack undoes SwitchTo.
func (v *Virtual) SwitchBack() { v.lead(v.Server.Dial) }

// startServer lets hooks be set before the first client comes: miniredis has no
// server to hang them on until somebody connects.
func (v *Virtual) startServer() {
	v.t.Helper()
	conn, err := v.Server.Dial()
	if err != nil {
		v.t.Fatalf("redistest: embedded server: %v", err)
	}
	_ = conn.Close()
}

// Client returns a client whose connections go through the proxy. It is closed
// when the test ends.
func (v *Virtual) Client(mods ...func(*redis.Options)) *redis.Client {
	opt := &redis.Options{
		// A literal address, since a resolver would live outside the bubble.
		Addr:   "127.0.0.1:1",
		Dialer: func(context.Context, string, string) (net.Conn, error) { return v.Dial() },
		// These would keep go-redis busy outside the bubble too.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		// Larger than any test's concurrency: go-redis keeps timers of those that
		// wait for a connection in a package-level pool, and one from an earlier
		// bubble is fatal.
		PoolSize:         1000,
		PipelinePoolSize: 1000,
	}
	for _, mod := range mods {
		mod(opt)
	}
	c := redis.NewClient(opt)
	v.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Dial connects to the proxy as a client does.
func (v *Virtual) Dial() (net.Conn, error) {
	if v.isRefusing() {
		// As package net says it, by which clients tell that nothing was sent.
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	}
	ours, theirs := net.Pipe()
	if err := v.connect(theirs); err != nil {
		return nil, err
	}
	return &pipeConn{Conn: ours}, nil
}
