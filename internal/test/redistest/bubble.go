package redistest

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redlatch/redlatch/lua"
)

// Virtual is an embedded server in virtual time, behind a proxy. It uses pipes instead of TCP. A
// goroutine that waits for a socket stops the clock of a bubble, but one that waits for a pipe does
// not.
type Virtual struct {
	*Proxy
	Server *miniredis.Miniredis

	denied  atomic.Bool // PUBLISH is
	refused atomic.Int64
}

// DenyPublish begins or ends a time in which PUBLISH is denied to everybody, in scripts too. It
// returns how often the server has denied it so far.
func (v *Virtual) DenyPublish(denied bool) (refused int64) {
	v.denied.Store(denied)
	return v.refused.Load()
}

// Bubble makes a server for the testing/synctest bubble that it is called in. The server ends with
// the test of that bubble. time.Sleep moves the clock of the server and expires its keys. SetTime
// and FastForward of Server simulate faults of its clock. For an outage, use Down, because a closed
// miniredis starts again by itself when a client dials it.
//
// The scripts of this library run in Lua states that the server keeps. See KeepLua.
//
// Outside of a bubble, the server works in real time. That is how redlatchtest uses it.
//
// The rules of bubbles hold for the code under test: nothing made outside, no package-level timers
// or pools, no I/O or sleep under a mutex, no t.Run. Close everything that uses a client before the
// test ends. Clients close by themselves.
func Bubble(t TB) *Virtual {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	v := &Virtual{Proxy: newProxy(t, m.Dial), Server: m}
	v.startServer()
	v.keepLua(isOfLibrary, func() {})
	return v
}

// isOfLibrary reports whether a command runs a script of this library.
func isOfLibrary(cmd []string) bool { return lua.ScriptName(cmd) != "" }

// Another makes a second link to the same server, with faults of its own, like the link of another
// machine.
func (v *Virtual) Another() *Virtual {
	return &Virtual{Proxy: newProxy(v.t, v.Server.Dial), Server: v.Server}
}

// Replica makes another server that lacks the data of this one and refuses writes, like a replica
// that has not caught up.
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

// writes are the commands of scripts and tests that a replica refuses.
var writes = []string{
	"DEL", "HDEL", "HINCRBY", "HSET", "INCR", "PERSIST", "PEXPIRE", "SET", "UNLINK", "ZADD", "ZREM", "ZREMRANGEBYSCORE",
}

// SwitchTo leads the clients of this link to another server. Connections end, and new ones go to
// the other server. SwitchBack leads the clients back.
func (v *Virtual) SwitchTo(other *Virtual) { v.lead(other.Server.Dial) }

// SwitchBack undoes SwitchTo.
func (v *Virtual) SwitchBack() { v.lead(v.Server.Dial) }

// startServer makes it possible to set hooks before the first client comes. miniredis has no server
// to set them on until somebody connects.
func (v *Virtual) startServer() {
	v.t.Helper()
	conn, err := v.Server.Dial()
	if err != nil {
		v.t.Fatalf("redistest: embedded server: %v", err)
	}
	_ = conn.Close()
}

// Client returns a client whose connections go through the proxy. It is closed when the test ends.
func (v *Virtual) Client(mods ...func(*redis.Options)) *redis.Client {
	opt := &redis.Options{
		// A literal address, because a resolver would run outside the bubble.
		Addr:   "127.0.0.1:1",
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return v.dialAs(ctx, nil) },
		// The default would also keep go-redis busy outside the bubble.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		// The pool is larger than the concurrency of any test. go-redis keeps the timers of calls
		// that wait for a connection in a package-level pool, and a timer from an earlier bubble is
		// fatal.
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
func (v *Virtual) Dial() (net.Conn, error) { return v.dialAs(context.Background(), nil) }

// dialAs is Dial for a connection to a place in a cluster, or nil. As with a net.Dialer, nobody
// dials when the context has ended: the hub relies on that when its reader gets an error, see
// withoutDial in internal/pubsub.
func (v *Virtual) dialAs(ctx context.Context, at *place) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: err}
	}
	if v.isRefusing() {
		// The same error as from package net, from which clients know that nothing was sent.
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	}
	ours, theirs := net.Pipe()
	if err := v.connect(theirs, at); err != nil {
		return nil, err
	}
	return &pipeConn{Conn: ours}, nil
}
