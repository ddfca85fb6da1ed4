package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sentinel runs a sentinel that watches master under this name until the test ends. It returns the
// address of the sentinel when the sentinel knows the master and its replicas. The sentinel needs
// no other sentinel for a majority, and takes a second of silence for a failure.
func Sentinel(t testing.TB, name string, master *Server, replicas int) string {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor %s 127.0.0.1 %d 1\n"+
		"sentinel down-after-milliseconds %s 1000\nsentinel failover-timeout %s 5000\n", port, dir, name, master.port, name, name)
	file := filepath.Join(dir, "sentinel.conf") // the sentinel writes to it
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := startChild(master.binary.path, dir, []string{file, "--sentinel"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	asks := redis.NewSentinelClient(&redis.Options{Addr: localAddr(port), MaxRetries: -1})
	defer asks.Close()
	for end := time.Now().Add(readyWithin); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if known, err := asks.Replicas(context.Background(), name).Result(); err == nil && len(known) == replicas {
			return localAddr(port)
		}
	}
	t.Fatalf("redistest: the sentinel does not know %d replicas of %s: %s", replicas, name, c.lastWords())
	return ""
}
