package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Watched is a master with replicas, which sentinels watch.
type Watched struct {
	Name     string // of the master, among the sentinels
	Master   *Server
	Replicas []*Server // sentinels promote only the first
	Addrs    []string  // of the sentinels
}

// StartWatched starts a master, two replicas and three sentinels, and stops them at the end of the
// test. Two sentinels must agree that the master fails. They take a second of silence for a
// failure. StartWatched returns when each replica has the data of the master, and each sentinel
// knows all others.
func StartWatched(t testing.TB) *Watched {
	t.Helper()
	const sentinels, quorum = 3, 2
	w := &Watched{Name: "primary", Master: Start(t, "--repl-diskless-sync-delay", "0")}
	// A sentinel does not promote a replica whose last INFO is older than five seconds, whatever
	// its priority. It asks each every ten seconds. So only "never", which is 0, is certain.
	priorities := []string{"100", "0"}
	for _, priority := range priorities {
		r := Start(t, "--replicaof", "127.0.0.1", fmt.Sprint(w.Master.port), "--replica-priority", priority, "--repl-diskless-sync-delay", "0")
		w.Replicas = append(w.Replicas, r)
		r.awaitLink(t)
	}
	for range sentinels {
		w.Addrs = append(w.Addrs, startSentinel(t, w, quorum))
	}
	for _, addr := range w.Addrs {
		w.await(t, addr, len(priorities), sentinels-1)
	}
	return w
}

// Client returns a client that asks the sentinels for the master. The test closes it at its end.
func (w *Watched) Client(t testing.TB, mods ...func(*redis.FailoverOptions)) *redis.Client {
	t.Helper()
	opt := &redis.FailoverOptions{MasterName: w.Name, SentinelAddrs: w.Addrs}
	for _, mod := range mods {
		mod(opt)
	}
	rdb := redis.NewFailoverClient(opt)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// awaitLink waits until the replica has the data of its master.
func (s *Server) awaitLink(t testing.TB) {
	t.Helper()
	if err := s.awaitReady(func(error) bool {
		info, err := s.control.Info(context.Background(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	}); err != nil {
		t.Fatalf("redistest: a replica does not follow its master: %v", err)
	}
}

// startSentinel tries ports until the sentinel has one, as startOnFreePort does.
func startSentinel(t testing.TB, w *Watched, quorum int) (addr string) {
	t.Helper()
	var last string
	for range 5 {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		config := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor %s 127.0.0.1 %d %d\n"+
			"sentinel down-after-milliseconds %s 1000\nsentinel failover-timeout %s 5000\n",
			port, dir, w.Name, w.Master.port, quorum, w.Name, w.Name)
		file := filepath.Join(dir, "sentinel.conf") // the sentinel writes to it
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := startChild(w.Master.binary.path, dir, []string{file, "--sentinel"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.kill)
		asks := redis.NewSentinelClient(&redis.Options{Addr: localAddr(port), MaxRetries: -1})
		for end := time.Now().Add(readyWithin); time.Now().Before(end) && !c.isDead(); time.Sleep(5 * time.Millisecond) {
			if known, err := asks.Master(context.Background(), w.Name).Result(); err == nil && known["port"] == fmt.Sprint(w.Master.port) {
				_ = asks.Close()
				return localAddr(port)
			}
		}
		_ = asks.Close()
		c.kill()
		last = c.lastWords()
	}
	t.Fatalf("redistest: no sentinel starts: %s", last)
	return ""
}

// await waits until a sentinel knows so many replicas and other sentinels.
func (w *Watched) await(t testing.TB, addr string, replicas, others int) {
	t.Helper()
	asks := redis.NewSentinelClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer asks.Close()
	ctx := context.Background()
	var known map[string]string
	for end := time.Now().Add(readyWithin); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		known, _ = asks.Master(ctx, w.Name).Result()
		if known["num-slaves"] == fmt.Sprint(replicas) && known["num-other-sentinels"] == fmt.Sprint(others) {
			return
		}
	}
	t.Fatalf("redistest: a sentinel knows not %d replicas and %d others: %v", replicas, others, known)
}
