package redlatch_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/lock"
)

// The reentrant mutex keeps every promise of the suite, on every server.
func TestMutex(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locktest.Run(t, mutexOn(func(t testing.TB) redis.UniversalClient { return b.Client(t) }))
	})
}

// A cluster of one node has all that a cluster asks of its clients: slots,
// errors about slots, another client.
func TestMutexInACluster(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--cluster-enabled", "yes")
	ctx := context.Background()
	require.NoError(t, s.Control().ClusterAddSlotsRange(ctx, 0, 16383).Err())
	require.Eventually(t, func() bool {
		info, err := s.Control().ClusterInfo(ctx).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	}, time.Minute, 5*time.Millisecond)
	locktest.Run(t, mutexOn(func(testing.TB) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	}))
}

func mutexOn(dial func(t testing.TB) redis.UniversalClient) locktest.Subject {
	return locktest.Subject{
		Dial:           dial,
		New:            newMutexes,
		Stays:          func(key string) bool { return strings.HasPrefix(key, "redisson_lock_token:") },
		Asks:           2, // one that is refused, and one when the subscription is in place
		Inspect:        inspectMutex,
		Reentrant:      true,
		OrderedLocally: true,
	}
}

// mutexes lets the suite use the mutexes of a client by name.
type mutexes struct{ *redlatch.Client }

func newMutexes(t testing.TB, rdb redis.UniversalClient, o locktest.Options) locktest.Client {
	t.Helper()
	options := []redlatch.Option{
		redlatch.WithLease(o.Lease), redlatch.WithPoll(o.Poll), redlatch.WithDescription(o.Description),
		redlatch.WithLogger(slog.New(slog.DiscardHandler)),
	}
	if o.Renewal != 0 {
		options = append(options, redlatch.WithRenewal(o.Renewal))
	}
	client, err := redlatch.New(rdb, options...)
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
