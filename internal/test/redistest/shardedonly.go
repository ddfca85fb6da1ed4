package redistest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// ShardedOnly makes a cluster behave like managed services that have sharded channels only. They
// turn PUBLISH and SUBSCRIBE into SPUBLISH and SSUBSCRIBE, also inside scripts, and answer with the
// names of the classic commands. They also refuse scripts that leave the slot of their keys. The
// servers are real ones. Only clients of Client meet this behaviour.
type ShardedOnly struct {
	cluster *Cluster
	refused atomic.Int64

	mu      sync.Mutex
	scripts map[string]string // by the SHA-1 of the text that clients send
}

// NewShardedOnly makes the stand-in for a cluster of Redis 7 or newer. With one master, it is like
// a service that shows all slots on one virtual node.
func NewShardedOnly(c *Cluster) *ShardedOnly {
	return &ShardedOnly{cluster: c, scripts: map[string]string{}}
}

// Refused counts the subscriptions that were refused with CROSSSLOT.
func (s *ShardedOnly) Refused() int { return int(s.refused.Load()) }

// Client returns a client of the service, which the test closes at its end.
func (s *ShardedOnly) Client(t TB, mods ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	opt := &redis.ClusterOptions{Addrs: []string{s.cluster.Nodes[0].Addr()}, Dialer: s.dial}
	for _, mod := range mods {
		mod(opt)
	}
	rdb := redis.NewClusterClient(opt)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func (s *ShardedOnly) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	server, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	client, inner := net.Pipe()
	c := &shardedConn{service: s, client: inner, server: server}
	go c.requests()
	go c.replies()
	return &pipeConn{Conn: client}, nil
}

// shardedConn is one connection of a client.
type shardedConn struct {
	service        *ShardedOnly
	client, server net.Conn
	classic        atomic.Bool // the client has sent SUBSCRIBE, and expects the answers to that
}

func (c *shardedConn) end() {
	_ = c.client.Close()
	_ = c.server.Close()
}

func (c *shardedConn) requests() {
	defer c.end()
	r := bufio.NewReader(c.client)
	for {
		cmd, err := readCommand(r)
		if err != nil {
			return
		}
		if _, err := c.server.Write(encode(c.translate(cmd))); err != nil {
			return
		}
	}
}

// translate returns the command that the service does.
func (c *shardedConn) translate(cmd command) []string {
	args := cmd.args
	switch cmd.name() {
	case "SUBSCRIBE", "UNSUBSCRIBE":
		c.classic.Store(true)
		args[0] = "S" + cmd.name()
	case "PUBLISH":
		args[0] = "SPUBLISH"
	case "EVAL":
		// A script with a first line like this must stay in the slot of its keys. Redis adds
		// nothing else.
		text := "#!lua\n" + strings.ReplaceAll(args[1], "'PUBLISH'", "'SPUBLISH'")
		sum := sha1.Sum([]byte(args[1])) //nolint:gosec // see above
		c.service.mu.Lock()
		c.service.scripts[hex.EncodeToString(sum[:])] = text
		c.service.mu.Unlock()
		args[1] = text
	case "EVALSHA":
		c.service.mu.Lock()
		text, known := c.service.scripts[args[1]]
		c.service.mu.Unlock()
		if known {
			args[0], args[1] = "EVAL", text
		}
	}
	return args
}

func (c *shardedConn) replies() {
	defer c.end()
	r := bufio.NewReader(c.server)
	for {
		f, err := readFrame(r)
		if err != nil {
			return
		}
		if _, err := c.client.Write(c.answer(f)); err != nil {
			return
		}
	}
}

// answer returns the bytes that the client gets.
func (c *shardedConn) answer(f frame) []byte {
	if !c.classic.Load() {
		return f.raw
	}
	if refusal, ok := f.value.(ReplyError); ok && strings.HasPrefix(string(refusal), "CROSSSLOT") {
		c.service.refused.Add(1)
	}
	switch kind := f.firstWord(); kind {
	case "ssubscribe", "sunsubscribe", "smessage":
		return bytes.Replace(f.raw, bulk(kind), bulk(kind[1:]), 1)
	}
	return f.raw
}

func encode(args []string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		b = append(b, bulk(arg)...)
	}
	return b
}

func bulk(text string) []byte { return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(text), text) }
