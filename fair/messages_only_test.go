package fair_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// badLink is the connections of a client whose waiters listen for messages. It counts what is wrong
// with them.
type badLink struct {
	refuses atomic.Bool
	slow    atomic.Int64 // delays the next answer by so many ns

	mu    sync.Mutex
	conns []net.Conn
}

func (l *badLink) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.refuses.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		c, err := next(ctx, network, addr)
		if err == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.conns = append(l.conns, c)
		}
		return c, err
	}
}

func (l *badLink) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer func() { time.Sleep(time.Duration(l.slow.Swap(0))) }()
		return next(ctx, cmd)
	}
}

func (l *badLink) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(l, next)
}

// cut closes one connection, or all if n is negative.
func (l *badLink) cut(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, c := range l.conns {
		if n < 0 || i == n%len(l.conns) {
			_ = c.Close()
		}
	}
}

// badStep is something that happens while clients wait.
type badStep struct {
	Do   string
	Name int
	For  time.Duration
}

func drawBadStep(t *rapid.T) badStep {
	return badStep{
		Do:   rapid.SampledFrom([]string{"hold", "hold", "wait", "wait", "release", "release", "refuse", "allow", "cut", "cut all", "slow", "sleep"}).Draw(t, "do"),
		Name: rapid.IntRange(0, 2).Draw(t, "name"),
		For:  rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second}).Draw(t, "for"),
	}
}

// Heartbeats come after twenty minutes only. So messages alone bring grants, and all ways to learn
// of one whose message was lost: the client cannot connect, its connections break, or an answer is
// late. When that is over, all waiters are served soon.
func TestWaitersAreServedWithoutHeartbeats(t *testing.T) {
	for kind, by := range queueLockers {
		t.Run(kind, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				steps := rapid.SliceOfN(rapid.Custom(drawBadStep), 4, 24).Draw(rt, "steps")
				var unserved int64
				synctest.Test(t, func(t *testing.T) { unserved = servedWithoutHeartbeats(t, by, steps) })
				if unserved > 0 {
					rt.Fatalf("%d waiters were not served", unserved)
				}
			})
		})
	}
}

// All connections break shortly before the hub sends a PING, and handshakes are slow. The reader of
// the pub/sub connection must make no new one: go-redis would hold the mutex that the PING needs
// until the handshake ends.
func TestTheReaderOfABrokenConnectionMakesNoNewOne(t *testing.T) {
	t.Parallel()
	for kind, by := range queueLockers {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				require.Zero(t, servedWithoutHeartbeats(t, by, []badStep{
					{"hold", 2, 100 * time.Millisecond}, {"wait", 2, 5 * time.Second}, {"release", 2, 5 * time.Second},
					{"hold", 0, time.Millisecond}, {"slow", 0, time.Second}, {"cut all", 0, 0}, {"sleep", 0, 100 * time.Millisecond},
				}))
			})
		})
	}
}

// servedWithoutHeartbeats plays the steps, and returns how many waiters are not served a minute
// later.
func servedWithoutHeartbeats(t *testing.T, by locker, steps []badStep) (unserved int64) {
	v := redistest.Bubble(t)
	rdb, link := v.Client(), &badLink{}
	rdb.AddHook(link)
	options := []redlatch.Option{redlatch.WithHeartbeat(time.Hour), redlatch.WithLease(time.Hour), redlatch.WithPollInterval(20 * time.Minute)}
	holder, waiter := stage.LocksOn(t, v.Client(), options...), stage.LocksOn(t, rdb, options...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	held := map[int]claim{}
	release := func(name int) {
		if c := held[name]; c != nil {
			c.release(t)
			delete(held, name)
		}
	}
	var waiting atomic.Int64
	for _, s := range steps {
		name := fmt.Sprint("door ", s.Name)
		switch s.Do {
		case "hold":
			if held[s.Name] == nil {
				short, stop := context.WithTimeout(ctx, time.Second)
				if c, err := by(short, holder, name); err == nil {
					held[s.Name] = c
				}
				stop()
			}
		case "wait":
			waiting.Add(1)
			go func() {
				if c, err := by(ctx, waiter, name); err == nil {
					waiting.Add(-1)
					_ = unlock(ctx, c) // the background goes on if it fails
				}
			}()
		case "release":
			release(s.Name)
		case "refuse", "allow":
			link.refuses.Store(s.Do == "refuse")
		case "cut":
			link.cut(s.Name)
		case "cut all":
			link.cut(-1)
		case "slow":
			link.slow.Store(int64(s.For))
		}
		time.Sleep(s.For)
		synctest.Wait()
	}
	link.refuses.Store(false)
	for name := range 3 {
		release(name)
	}
	time.Sleep(time.Minute)
	return waiting.Load()
}
