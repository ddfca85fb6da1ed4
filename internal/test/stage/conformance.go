package stage

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/semaphore"
)

// InACluster runs the suite of all primitives on a cluster of one node.
func InACluster(t *testing.T, subject func(dial func(t testing.TB) redis.UniversalClient, more ...redlatch.Option) locktest.Subject) {
	t.Parallel()
	dial := ClusterOfOne(t)
	locktest.Run(t, subject(func(testing.TB) redis.UniversalClient { return dial() }))
}

// FairOn makes fair mutexes for the suite of all primitives.
func FairOn(dial func(t testing.TB) redis.UniversalClient, more ...redlatch.Option) locktest.Subject {
	s := MutexOn(dial)
	s.New = func(t testing.TB, rdb redis.UniversalClient, o locktest.Options) locktest.Client {
		return fairMutexes{newMutexes(t, rdb, o, append(more, redlatch.WithHeartbeat(3*o.Poll))...).(mutexes).Client}
	}
	s.Inspect = func(ctx context.Context, c locktest.Client, name string) (lock.Info, error) {
		return c.(fairMutexes).FairMutex(name).Inspect(ctx)
	}
	s.AsksBehind, s.Ordered = 1, true // the command for the place in the queue, because the client has no queue of its own
	return s
}

// fairMutexes lets the suite use the fair mutexes of a client by name.
type fairMutexes struct{ *redlatch.Client }

func (m fairMutexes) Lock(ctx context.Context, name string) (locktest.Hold, error) {
	return asHold(m.FairMutex(name).Lock(ctx))
}

func (m fairMutexes) TryLock(ctx context.Context, name string) (locktest.Hold, error) {
	return asHold(m.FairMutex(name).TryLock(ctx))
}

func (m fairMutexes) Do(ctx context.Context, name string, fn func(context.Context) error) error {
	return m.FairMutex(name).Do(ctx, fn)
}

func (m fairMutexes) TryDo(ctx context.Context, name string, fn func(context.Context) error) error {
	return m.FairMutex(name).TryDo(ctx, fn)
}

// SemaphoreOfOneOn makes semaphores with one unit for the suite of all primitives.
func SemaphoreOfOneOn(dial func(t testing.TB) redis.UniversalClient, more ...redlatch.Option) locktest.Subject {
	s := FairOn(dial, more...)
	s.New = func(t testing.TB, rdb redis.UniversalClient, o locktest.Options) locktest.Client {
		return semaphoresOfOne{newMutexes(t, rdb, o, append(more, redlatch.WithHeartbeat(3*o.Poll))...).(mutexes).Client}
	}
	// The limit stays, and so does the description of a permit that has ended, until the next
	// command.
	s.Stays = func(k string) bool {
		return strings.HasPrefix(k, "redlatch:permits:") || strings.HasPrefix(k, "redlatch:holders:")
	}
	s.Inspect, s.Reentrant, s.Anonymous = nil, false, true
	return s
}

// semaphoresOfOne lets the suite use semaphores of one permit as locks.
type semaphoresOfOne struct{ *redlatch.Client }

func (s semaphoresOfOne) Lock(ctx context.Context, name string) (locktest.Hold, error) {
	return asPermit(s.Semaphore(name, 1).Acquire(ctx, 1))
}

func (s semaphoresOfOne) TryLock(ctx context.Context, name string) (locktest.Hold, error) {
	return asPermit(s.Semaphore(name, 1).TryAcquire(ctx, 1))
}

func (s semaphoresOfOne) Do(ctx context.Context, name string, fn func(context.Context) error) error {
	return s.Semaphore(name, 1).Do(ctx, 1, fn)
}

func (s semaphoresOfOne) TryDo(ctx context.Context, name string, fn func(context.Context) error) error {
	return s.Semaphore(name, 1).TryDo(ctx, 1, fn)
}

type permit struct{ *semaphore.Permit }

func asPermit(p *semaphore.Permit, err error) (locktest.Hold, error) {
	if err != nil {
		return nil, err // not a nil *Permit in a non-nil interface
	}
	return permit{p}, nil
}

func (p permit) Fence() int64 { return 0 }

func (p permit) Unlock(ctx context.Context) error { return p.Release(ctx) }

// MutexOn makes mutexes for the suite of all primitives.
func MutexOn(dial func(t testing.TB) redis.UniversalClient, more ...redlatch.Option) locktest.Subject {
	return locktest.Subject{
		Dial: dial,
		New: func(t testing.TB, rdb redis.UniversalClient, o locktest.Options) locktest.Client {
			return newMutexes(t, rdb, o, more...)
		},
		Stays:          func(key string) bool { return strings.HasPrefix(key, "redisson_lock_token:") },
		Asks:           2, // one that is refused, and one when the subscription exists
		Inspect:        inspectMutex,
		Reentrant:      true,
		OrderedLocally: true,
	}
}

// mutexes lets the suite use the mutexes of a client by name.
type mutexes struct{ *redlatch.Client }

func newMutexes(t testing.TB, rdb redis.UniversalClient, o locktest.Options, more ...redlatch.Option) locktest.Client {
	t.Helper()
	options := []redlatch.Option{
		redlatch.WithLease(o.Lease), redlatch.WithPollInterval(o.Poll), redlatch.WithDescription(o.Description),
		redlatch.WithWaitTimeout(o.WaitTimeout),
		redlatch.WithLogger(slog.New(slog.DiscardHandler)),
	}
	if o.Renewal != 0 {
		options = append(options, redlatch.WithRenewInterval(o.Renewal))
	}
	client, err := redlatch.New(rdb, append(options, more...)...)
	require.NoError(t, err)
	return mutexes{client}
}

func (m mutexes) Lock(ctx context.Context, name string) (locktest.Hold, error) {
	return asHold(m.Mutex(name).Lock(ctx))
}

func (m mutexes) TryLock(ctx context.Context, name string) (locktest.Hold, error) {
	return asHold(m.Mutex(name).TryLock(ctx))
}

func (m mutexes) Do(ctx context.Context, name string, fn func(context.Context) error) error {
	return m.Mutex(name).Do(ctx, fn)
}

func (m mutexes) TryDo(ctx context.Context, name string, fn func(context.Context) error) error {
	return m.Mutex(name).TryDo(ctx, fn)
}

// asHold keeps a nil hold from becoming an interface that is not nil.
func asHold(h *lock.Hold, err error) (locktest.Hold, error) {
	if h == nil {
		return nil, err
	}
	return h, err
}

func inspectMutex(ctx context.Context, c locktest.Client, name string) (lock.Info, error) {
	return c.(mutexes).Mutex(name).Inspect(ctx)
}
