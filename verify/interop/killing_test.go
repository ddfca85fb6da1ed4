package interop_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// killLease is the lease on both sides when a process is killed.
const killLease = 3 * time.Second

// A Java process is killed while its watchdog holds a lock. Go gets the lock when the lease ends.
// The poll bound of Go is too long to be the reason.
func TestGoTakesOverFromAKilledJava(t *testing.T) {
	t.Parallel()
	victim := ownJava(t)
	server := redistest.Shared(t)
	rdb := server.Client(t)
	holder := victim.open(t, server.Addr(), redissonOptions{watchdog: killLease}).thread("holds")
	m := locksOn(t, rdb, redlatch.WithPollInterval(never)).Mutex(redistest.Name(t))
	holder.lock(m.Name())
	renewals(t, rdb, m.Name(), 1, func() {})
	got := waits(t, m)
	victim.kill()
	at := time.Now()
	g := granted(t, got)
	t.Logf("Go has the lock %v after the kill; the lease was %v", g.at.Sub(at).Round(time.Millisecond), killLease)
	unlock(t, g.hold)
}

// A Go process is killed while its watchdog holds a lock. Java gets the lock when the lease ends.
// Without a message, Java waits for nothing else.
func TestJavaTakesOverFromAKilledGo(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Shared(t)
	rdb := server.Client(t)
	name := redistest.Name(t)
	kill := holdElsewhere(t, server.URL(), name)
	next := r.open(t, server.Addr()).thread("next")
	renewals(t, rdb, name, 1, func() {})
	got := next.waits(name)
	require.Eventually(t, func() bool { return listeners(t, rdb, name) == 1 }, guard, time.Millisecond)
	kill()
	at := time.Now()
	won := next.await(got, "gets the lock")
	require.Empty(t, won.err)
	t.Logf("Java has the lock %v after the kill; the lease was %v", won.ended.Sub(at).Round(time.Millisecond), killLease)
	next.unlock(name)
}

// holdElsewhere lets another Go process hold a lock until it is killed.
func holdElsewhere(t testing.TB, url, name string) (kill func()) {
	t.Helper()
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), workerEnv+"="+name, workerURLEnv+"="+url)
	worker.Stderr = os.Stderr
	_, err := worker.StdinPipe() // ends with this process, and then the worker ends
	require.NoError(t, err)
	out, err := worker.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, worker.Start())
	kill = func() {
		_ = worker.Process.Kill()
		_ = worker.Wait()
	}
	t.Cleanup(kill)
	said, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "held\n", said)
	return kill
}

const workerURLEnv = "REDLATCH_INTEROP_URL"

// holdUntilKilled is the worker. It ends with its standard input at the latest.
func holdUntilKilled(name string) error {
	options, err := redis.ParseURL(os.Getenv(workerURLEnv))
	if err != nil {
		return err
	}
	locks, err := redlatch.New(redis.NewClient(options), redlatch.WithLease(killLease))
	if err != nil {
		return err
	}
	h, err := locks.Mutex(name).Lock(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("held")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return h.Unlock(context.Background())
}
