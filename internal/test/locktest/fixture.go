package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lockerr"
)

// limit is the time limit of everything that must happen. Only a broken lock reaches it.
const limit = time.Minute

// far is a lease and a poll bound that end after every test. So only the message of a release can
// wake up a waiter.
const far = 20 * time.Minute

var (
	patient = Options{Lease: far, Poll: far}
	// mortal locks are renewed, or end, while the test runs. They survive if the machine has no
	// time for them for a second.
	mortal = Options{Lease: 3 * time.Second, Poll: far}
)

// fixture has what one property needs: one lock, and the processes that use it.
type fixture struct {
	*testing.T
	subject Subject
	name    string
	admin   redis.UniversalClient // checks the server; has no part in the lock
	users   sync.WaitGroup        // goroutines that use the lock
	clients []string              // the ids of the processes' clients
}

var lastName atomic.Int64

func newFixture(t *testing.T, s Subject) *fixture {
	f := &fixture{T: t, subject: s, name: fmt.Sprintf("%s/%d", t.Name(), lastName.Add(1))}
	f.admin = s.Dial(t)
	t.Cleanup(func() { _ = f.admin.Close() })
	t.Cleanup(f.nothingRemains)
	t.Cleanup(f.users.Wait) // every process has been closed by then, which wakes them up
	return f
}

// nothingRemains checks the end of every property, whatever its result.
func (f *fixture) nothingRemains() {
	if f.Failed() {
		return
	}
	defer func() {
		if f.Failed() {
			f.Logf("remains: keys %q, channels %q", f.keys(), f.channels())
		}
	}()
	f.eventually(func() bool { return len(f.keys()) == 0 && len(f.channels()) == 0 }, "nothing of the lock remains")
}

// keys are the keys of the lock, except those that Redis keeps by design.
func (f *fixture) keys() []string {
	var keys []string
	for _, k := range f.allKeys() {
		if !f.subject.Stays(k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// channels are the channels of the lock and of its clients that have listeners.
func (f *fixture) channels() (all []string) {
	for _, part := range append(f.clients, f.name) {
		f.onServers((*redis.ClusterClient).ForEachShard, func(ctx context.Context, server redis.Cmdable) error {
			found, err := server.PubSubChannels(ctx, "*"+part+"*").Result()
			all = append(all, found...)
			return err
		})
	}
	return all
}

// allKeys are the keys of the lock, sorted.
func (f *fixture) allKeys() (all []string) {
	f.onServers((*redis.ClusterClient).ForEachMaster, func(ctx context.Context, server redis.Cmdable) error {
		found, err := server.Keys(ctx, "*"+f.name+"*").Result()
		all = append(all, found...)
		return err
	})
	slices.Sort(all)
	return all
}

// onServers calls ask for the server, or for each of a cluster's that each calls it for, one after
// the other.
func (f *fixture) onServers(each func(c *redis.ClusterClient, ctx context.Context, ask func(context.Context, *redis.Client) error) error,
	ask func(ctx context.Context, server redis.Cmdable) error,
) {
	ctx := context.Background()
	cluster, ok := f.admin.(*redis.ClusterClient)
	if !ok {
		require.NoError(f, ask(ctx, f.admin))
		return
	}
	var mu sync.Mutex
	require.NoError(f, each(cluster, ctx, func(ctx context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return ask(ctx, c)
	}))
}

// wipe removes everything that Redis has of the lock at once, as a failover would. Key by key, a
// waiter that polls in between could write one of them again, and leave it until it expires.
func (f *fixture) wipe() {
	f.Helper()
	all := f.allKeys()
	require.NotEmpty(f, all, "there is something to wipe")
	require.NoError(f, f.admin.Del(context.Background(), all...).Err())
}

// eventually waits for a state of the server that no message announces.
func (f *fixture) eventually(ok func() bool, what string) {
	f.Helper()
	require.Eventually(f, ok, limit, 2*time.Millisecond, what)
}

// usersDone waits for the goroutines that use the lock.
func (f *fixture) usersDone() {
	f.Helper()
	done := make(chan struct{})
	go func() { f.users.Wait(); close(done) }()
	receive(f, done, "everybody has had the lock")
}

// receive waits for c to be closed or to have a value.
func receive[T any](f *fixture, c <-chan T, what string) (v T) {
	f.Helper()
	select {
	case v = <-c:
	case <-time.After(limit):
		require.FailNow(f, "did not happen: "+what)
	}
	return v
}

// pending asserts that c is open and has no value now.
func pending[T any](f *fixture, c <-chan T, what string) {
	f.Helper()
	select {
	case <-c:
		require.FailNow(f, "happened too early: "+what)
	default:
	}
}

// newChain starts a call chain, as redlatch.WithOwner does.
func newChain() context.Context { return owner.NewContext(context.Background(), owner.New()) }

// process is a client with connections of its own, as a separate process would have. Its methods
// use the lock of the fixture.
type process struct {
	f      *fixture
	client Client
	rdb    redis.UniversalClient
	sent   *traffic
}

func (f *fixture) process(o Options) *process {
	f.Helper()
	p := &process{f: f, rdb: f.subject.Dial(f), sent: new(traffic)}
	p.rdb.AddHook(p.sent)
	p.client = f.subject.New(f, p.rdb, o)
	f.Cleanup(p.end)
	p.warmUp()
	return p
}

// warmUp lets the client learn the server's clock, which costs its first grant another script.
func (p *process) warmUp() {
	p.f.Helper()
	h, err := p.client.TryLock(context.Background(), fmt.Sprintf("warm up/%d", lastName.Add(1)))
	require.NoError(p.f, err)
	id, _, _ := strings.Cut(h.ID(), ":")
	p.f.clients = append(p.f.clients, id)
	require.NoError(p.f, h.Unlock(context.Background()))
}

func (p *process) end() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if p.sent.dead.Load() {
		cancel() // Close cannot release anything
	}
	_ = p.client.Close(ctx)
	_ = p.rdb.Close()
}

// die ends the process as far as Redis can see. The client sends nothing any more, and releases
// nothing.
func (p *process) die() {
	p.sent.dead.Store(true)
	_ = p.rdb.Close()
}

func (p *process) lock() Hold {
	p.f.Helper()
	return p.lockWith(context.Background())
}

func (p *process) lockWith(ctx context.Context) Hold {
	p.f.Helper()
	return p.start(ctx).got()
}

func (p *process) tryLock(ctx context.Context) (Hold, error) {
	return p.client.TryLock(ctx, p.f.name)
}

// refused asserts with TryLock that somebody holds the lock.
func (p *process) refused() *lockerr.NotAcquiredError {
	p.f.Helper()
	h, err := p.tryLock(context.Background())
	require.ErrorIs(p.f, err, lockerr.ErrNotAcquired)
	require.Nil(p.f, h)
	var facts *lockerr.NotAcquiredError
	require.ErrorAs(p.f, err, &facts)
	return facts
}

// free asserts that the lock is free, by taking it for a moment. With a queue, a waiter that has
// just given up may still have the lock for a moment.
func (p *process) free() {
	p.f.Helper()
	h, err := p.tryLock(context.Background())
	if p.f.subject.Ordered && err != nil {
		p.f.eventually(func() bool {
			h, err = p.tryLock(context.Background())
			return err == nil
		}, "the lock is free")
	}
	require.NoError(p.f, err)
	p.unlock(h)
}

func (p *process) unlock(h Hold) {
	p.f.Helper()
	require.NoError(p.f, h.Unlock(context.Background()))
}

// traffic counts the scripts of one client.
type traffic struct {
	sent atomic.Int64
	dead atomic.Bool
}

// DialHook implements redis.Hook.
func (c *traffic) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (c *traffic) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		c.sent.Add(1)
		err := next(ctx, cmd)
		if redis.HasErrorPrefix(err, "NOSCRIPT") || isVoid(cmd) {
			c.sent.Add(-1) // the client sends it again, with its text, or with the server's time
		} else {
			if w, waits := ctx.Value(waitingKey{}).(*waiting); waits {
				w.answered.Add(1)
			}
		}
		return err
	}
}

// isVoid reports whether a command was void. The first one to each master of a cluster is.
func isVoid(cmd redis.Cmder) bool {
	script, is := cmd.(interface{ Slice() ([]any, error) })
	if !is {
		return false
	}
	fields, _ := script.Slice()
	return len(fields) == 2 && fields[0] == int64(-2)
}

// ProcessPipelineHook implements redis.Hook.
func (c *traffic) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(c, next)
}

// kinds are the sentinels that an error matches. It is always exactly one of them.
func kinds(err error) []error {
	var found []error
	for _, kind := range []error{
		lockerr.ErrNotAcquired, lockerr.ErrNotReplicated, lockerr.ErrLost, lockerr.ErrNotHeld, lockerr.ErrIndeterminate,
		lockerr.ErrUnavailable, lockerr.ErrRefused, lockerr.ErrClosed, lockerr.ErrConfig,
	} {
		if errors.Is(err, kind) {
			found = append(found, kind)
		}
	}
	return found
}
