package stage

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/reentrant"
)

// Scene is one client with one lock behind a proxy, and a client that does not use the proxy.
type Scene struct {
	T      *testing.T
	Proxy  *redistest.Proxy
	Client *redis.Client // of locks
	Direct *redis.Client
	Locks  *redlatch.Client
	Mutex  *reentrant.Mutex
	Name   string
	Settle func() // returns when nothing moves any more, in virtual time
}

// NewScene makes a scene of these connections.
func NewScene(t *testing.T, proxy *redistest.Proxy, client, direct *redis.Client, options ...redlatch.Option) *Scene {
	t.Helper()
	locks, err := redlatch.New(client, options...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	s := &Scene{T: t, Proxy: proxy, Client: client, Direct: direct, Locks: locks, Name: redistest.Name(t), Settle: func() {}}
	s.Mutex = locks.Mutex(s.Name)
	return s
}

// InBubble makes a scene in a bubble.
func InBubble(t *testing.T, options ...redlatch.Option) *Scene {
	t.Helper()
	return InBubbleOf(t, func(*redis.Options) {}, options...)
}

// InBubbleOf is InBubble with a go-redis client of other options.
func InBubbleOf(t *testing.T, mod func(*redis.Options), options ...redlatch.Option) *Scene {
	t.Helper()
	// Last of all, because go-redis dials in the background, with pauses.
	t.Cleanup(func() { time.Sleep(15 * time.Second) })
	server := redistest.Bubble(t)
	direct := server.Client(func(o *redis.Options) {
		o.Dialer = func(context.Context, string, string) (net.Conn, error) { return server.Server.Dial() }
	})
	s := NewScene(t, server.Proxy, server.Client(mod), direct, options...)
	s.Settle = synctest.Wait
	return s
}

// OnRealServer makes a scene on the shared server.
func OnRealServer(t *testing.T, options ...redlatch.Option) *Scene {
	t.Helper()
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server.Addr())
	return NewScene(t, proxy, proxy.Client(), server.Client(t), options...)
}

// Stored is the data under the name of the lock in Redis, without the description.
func (s *Scene) Stored() map[string]string {
	s.T.Helper()
	fields, err := s.Direct.HGetAll(context.Background(), s.Name).Result()
	require.NoError(s.T, err)
	delete(fields, "redlatch:about")
	return fields
}

// Lock waits for the lock.
func (s *Scene) Lock(ctx context.Context) *lock.Hold {
	s.T.Helper()
	h, err := s.Mutex.Lock(ctx)
	require.NoError(s.T, err)
	return h
}

// Holds asserts that the acquisition of h has n holds of the lock.
func (s *Scene) Holds(h *lock.Hold, n int) {
	s.T.Helper()
	require.Equal(s.T, map[string]string{h.ID(): strconv.Itoa(n)}, s.Stored())
	fence, err := s.Direct.Get(context.Background(), "redisson_lock_token:{"+s.Name+"}").Int64()
	require.NoError(s.T, err)
	require.Equal(s.T, fence, h.Fence())
}

// Free asserts that nobody has the lock.
func (s *Scene) Free() {
	s.T.Helper()
	require.Empty(s.T, s.Stored())
}

// Unlock releases a hold.
func (s *Scene) Unlock(h *lock.Hold) {
	s.T.Helper()
	require.NoError(s.T, h.Unlock(context.Background()))
}

// Cut loses the replies of the next n commands of a kind.
func (s *Scene) Cut(kind func([]string) bool, n int) *redistest.Fault {
	return s.Proxy.Inject(redistest.Rule{Match: kind, Times: n, Action: redistest.CutReply()})
}

// Wait makes another owner wait for the lock.
func (s *Scene) Wait() <-chan *lock.Hold {
	got := make(chan *lock.Hold, 1)
	ready := make(chan struct{})
	go func() {
		close(ready)
		h, err := s.Mutex.Lock(context.Background())
		if err != nil {
			panic(err)
		}
		got <- h
	}()
	<-ready
	s.Settle()
	return got
}

// TrustEnds asserts that trust ends before Redis ends the lease.
func (s *Scene) TrustEnds(holds ...*lock.Hold) {
	s.T.Helper()
	left, err := s.Direct.PTTL(context.Background(), s.Name).Result()
	require.NoError(s.T, err)
	for _, h := range holds {
		require.True(s.T, h.Trusted())
		require.LessOrEqual(s.T, time.Until(h.TrustedUntil()), left)
	}
}

// NothingLeft closes the client, which waits for its background work.
func (s *Scene) NothingLeft() {
	s.T.Helper()
	require.NoError(s.T, s.Locks.Close(context.Background()))
	s.Free()
}

// Lose makes the lock of the scene lost, and returns the context of its hold.
func (s *Scene) Lose() context.Context {
	s.T.Helper()
	h := s.Lock(context.Background())
	require.NoError(s.T, s.Direct.Del(context.Background(), s.Name).Err())
	<-h.Lost()
	return h.Context()
}

// InHastyBubble is a scene whose attempts give up long before the end of the sent commands.
func InHastyBubble(t *testing.T) *Scene {
	t.Helper()
	server := redistest.Bubble(t)
	client := server.Client(func(o *redis.Options) { o.ReadTimeout = 100 * time.Millisecond })
	s := NewScene(t, server.Proxy, client, server.Client())
	s.Settle = synctest.Wait
	s.Unlock(s.Lock(context.Background())) // the client learns the server's clock
	return s
}

// HoldBack keeps the next command of a kind from the server.
func (s *Scene) HoldBack(kind func([]string) bool) *redistest.Fault {
	return s.Proxy.Inject(redistest.Rule{Match: kind, Times: 1, Action: redistest.HoldBack()})
}

// GivenBack lets the copies arrive in the given order, while nobody has the lock. It asserts that
// their grants are gone long before the end of a lease.
func (s *Scene) GivenBack(kept ...*redistest.Fault) {
	s.T.Helper()
	s.Free()
	s.Settle() // the first clean-up has found nothing
	for _, f := range kept {
		require.Equal(s.T, []int64{1}, s.LetGo(f), "the ghost must be there for the test to mean anything")
	}
	require.Len(s.T, s.Stored(), 1)
	time.Sleep(3 * PastItsEnd)
	s.Free()
}

// Begin makes another owner wait for the lock until ctx ends.
func (s *Scene) Begin(ctx context.Context) (hold <-chan *lock.Hold, failed <-chan error) {
	holds, errs := make(chan *lock.Hold, 1), make(chan error, 1)
	go func() {
		if h, err := s.Mutex.Lock(ctx); err != nil {
			errs <- err
		} else {
			holds <- h
		}
	}()
	s.Settle()
	return holds, errs
}

// Soon returns the hold of a waiter that gets it long before the end of a lease, or else nil.
func (s *Scene) Soon(hold <-chan *lock.Hold) *lock.Hold {
	select {
	case h := <-hold:
		return h
	case <-time.After(10 * time.Second): // a lease has thirty
		return nil
	}
}

// Copies keeps a copy of the next command of a kind. The command itself passes.
func (s *Scene) Copies(kind func([]string) bool) *redistest.Fault {
	return s.Proxy.Inject(redistest.Rule{Match: kind, Times: 1, Action: redistest.Duplicate()})
}

// LetGo sends the commands that the fault kept. It returns the first number of each reply, which is
// what the script found. A short reply stands for a table that begins with 1.
func (s *Scene) LetGo(kept *redistest.Fault) []int64 {
	s.T.Helper()
	require.Equal(s.T, 1, kept.Late(), "there is a copy to send")
	var found []int64
	for _, reply := range kept.Release() {
		switch reply := reply.(type) {
		case []any:
			found = append(found, reply[0].(int64))
		case int64, string:
			found = append(found, 1)
		default:
			require.Fail(s.T, "no reply of a script", "%v", reply)
		}
	}
	s.Settle()
	return found
}

// PastItsEnd is longer than a command stays valid.
const PastItsEnd = 3 * time.Second

// TTL is the rest of the lease in Redis.
func (s *Scene) TTL() time.Duration {
	s.T.Helper()
	ttl, err := s.Direct.PTTL(context.Background(), s.Name).Result()
	require.NoError(s.T, err)
	return ttl
}

// OnReplicas does something with the next times WAITs after the first skip; 0: with all of them.
func (s *Scene) OnReplicas(skip, times int, action redistest.Action) *redistest.Fault {
	return s.Proxy.Inject(redistest.Rule{Match: redistest.Command("WAIT"), Skip: skip, Times: times, Action: action})
}

// Replicas is the answer to a WAIT that so many of them have everything.
func Replicas(n int) redistest.Action { return redistest.FailAfter(fmt.Sprint(":", n)) }

// HoldUpWaits makes each WAIT take that long, whatever its answer is.
func (s *Scene) HoldUpWaits(d time.Duration) {
	s.Proxy.Inject(redistest.Rule{Match: func(cmd []string) bool {
		if redistest.Command("WAIT")(cmd) {
			time.Sleep(d)
		}
		return false
	}})
}

// NothingIsHeld asserts that Redis grants locks of each kind to another client, and that the client
// has forgotten them.
func (s *Scene) NothingIsHeld() {
	s.T.Helper()
	other := LocksOn(s.T, s.Direct)
	for kind, k := range Kinds {
		ctx, cancel := context.WithTimeout(s.T.Context(), 10*time.Second)
		_, release, err := k.Take(other, ctx)
		require.NoError(s.T, err, kind)
		require.NoError(s.T, release(ctx), kind)
		cancel()
	}
	s.Free()
	time.Sleep(time.Second) // a client remembers for a moment who else wanted a lock
	require.Zero(s.T, NamesInUse(s.Locks))
	require.Zero(s.T, PermitsInUse(s.Locks))
}

// OnGrant calls f once, after the answer of the script that granted a lock or a permit.
func (s *Scene) OnGrant(f func()) {
	f = sync.OnceFunc(f)
	s.Client.AddHook(afterScripts(func() {
		if n, _ := s.Direct.Exists(context.Background(), "orders", "redlatch:holders:{orders}").Result(); n > 0 {
			f()
		}
	}))
}
