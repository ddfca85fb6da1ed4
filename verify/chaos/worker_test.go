//go:build unix

package chaos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/workload"
)

// plan says what a worker, which is a process of its own, does.
type plan struct {
	Do        string // hold: takes all names and waits; work: takes them again and again
	Primitive string
	URL       string // of the locks
	Names     []string
	Lease     time.Duration

	Client    int
	File      string // its history
	Resources string // address of the Redis with the protected resources
	Wild      bool   // observers misbehave
}

// work is the body of a worker. It ends when stdin does, so that no worker outlives its test.
func work(text string) error {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	opt, err := redis.ParseURL(p.URL)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	options := []redlatch.Option{
		redlatch.WithLease(p.Lease), redlatch.WithPollInterval(poll), redlatch.WithHeartbeat(p.Lease * 5 / 4),
		redlatch.WithLogger(slog.New(slog.DiscardHandler)),
	}
	if p.Wild {
		resources := redis.NewClient(&redis.Options{Addr: p.Resources})
		defer resources.Close()
		for what := range misbehaviours {
			options = append(options, redlatch.WithObserver(misbehaves(resources, what, p.Lease)))
		}
	}
	locks, err := redlatch.New(rdb, options...)
	if err != nil {
		return err
	}
	prim := primitives[slices.IndexFunc(primitives, func(prim primitive) bool { return prim.name == p.Primitive })]
	switch p.Do {
	case "hold":
		err = p.hold(prim, locks)
	case "work":
		err = p.work(prim, locks)
	default:
		err = fmt.Errorf("no such order to a worker: %q", p.Do)
	}
	return errors.Join(err, locks.Close(context.Background()))
}

func (p plan) hold(prim primitive, locks *redlatch.Client) error {
	for _, name := range p.Names {
		h, err := prim.lock(locks, name).Lock(context.Background())
		if err != nil {
			return err
		}
		defer h.Unlock(context.Background()) // also keeps it from being garbage
	}
	fmt.Println("held")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// work records what it does in a file, and changes two resources under the lock. One checks fences,
// and the other does not. work does not check whether it has lost the lock. It writes like a holder
// that was stopped just before the write.
func (p plan) work(prim primitive, locks *redlatch.Client) error {
	file, err := os.Create(p.File)
	if err != nil {
		return err
	}
	defer file.Close()
	rdb := redis.NewClient(&redis.Options{Addr: p.Resources})
	defer rdb.Close()
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	rec := history.ToFile(history.Monotonic, file)
	actors := make([]*workload.Actor, len(p.Names))
	for i, name := range p.Names {
		a := &workload.Actor{Client: p.Client, Name: name, Recorder: rec}
		if prim.fenced() {
			a.Resources = []check.Resource{newBoth(rdb, name)}
		}
		actors[i] = prim.actor(locks, a)
	}
	fmt.Println("working")
	for !ended.Load() {
		think := rand.N(p.Lease / 10)
		if rand.N(20) == 0 { // longer than the lease, which the client renews meanwhile
			think = p.Lease + rand.N(p.Lease)
		}
		actors[rand.N(len(actors))].Run(context.Background(), []workload.Step{
			{Verb: workload.Acquire, For: 4 * p.Lease, Units: prim.some()}, {Verb: workload.Work, For: think},
		})
	}
	return rec.Err()
}

// both is a resource that checks fences and one that does not, which change together.
type both struct {
	check.Resource // the one that checks

	unchecked check.Resource
	seen      int64
	rejected  func()
}

func newBoth(rdb *redis.Client, name string) *both {
	return &both{
		Resource:  check.NewRemote(rdb, resourceKey(name, true), true),
		unchecked: check.NewRemote(rdb, resourceKey(name, false), false),
		rejected:  func() { rdb.Incr(context.Background(), rejections) },
	}
}

// rejections is the key in which the workers count their writes that were rejected as stale.
const rejections = "rejections"

func resourceKey(name string, checked bool) string {
	return fmt.Sprintf("%s checked %v", name, checked)
}

func (b *both) Read(ctx context.Context, fence int64) (v int64, err error) {
	if b.seen, err = b.unchecked.Read(ctx, fence); err != nil {
		return 0, err
	}
	return b.Resource.Read(ctx, fence)
}

func (b *both) Write(ctx context.Context, fence, value int64) error {
	if err := b.unchecked.Write(ctx, fence, b.seen+1); err != nil {
		return err
	}
	err := b.Resource.Write(ctx, fence, value)
	if errors.Is(err, check.ErrStale) {
		b.rejected()
	}
	return err
}

// worker is a process that carries out a plan.
type worker struct {
	c      *course
	plan   plan
	cmd    *exec.Cmd
	in     io.Closer
	out    *bufio.Reader
	reaped bool
}

// worker starts a process.
func (c *course) worker(p plan) *worker {
	c.Helper()
	text, err := json.Marshal(p)
	require.NoError(c, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(c, err)
	out, err := cmd.StdoutPipe()
	require.NoError(c, err)
	require.NoError(c, cmd.Start())
	w := &worker{c: c, plan: p, cmd: cmd, in: in, out: bufio.NewReader(out)}
	c.Cleanup(w.kill)
	return w
}

// await returns when the worker prints a word.
func (w *worker) await(word string) {
	w.c.Helper()
	line, err := w.out.ReadString('\n')
	require.NoError(w.c, err)
	require.Equal(w.c, word+"\n", line)
}

func (w *worker) signal(s syscall.Signal) {
	w.c.Helper()
	require.NoError(w.c, w.cmd.Process.Signal(s))
}

// kill ends the process, also if it is stopped. Calling it twice is fine.
func (w *worker) kill() {
	if !w.reaped {
		w.reaped = true
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	}
}

// end lets the worker finish what it does, and fails the row if that went wrong.
func (w *worker) end() {
	w.c.Helper()
	if w.reaped {
		return
	}
	w.reaped = true
	_ = w.in.Close()
	require.NoError(w.c, w.cmd.Wait())
}
