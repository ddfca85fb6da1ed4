package redlatch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: a pub/sub connection that answers, and gets no messages, is replaced.

// deafKinds are the locks whose waiters need messages, each with the channel of the messages. Polls
// and heartbeats come so seldom in these tests that only a message, or a new subscription, wakes a
// waiter.
var deafKinds = map[string]struct {
	lock    func(ctx context.Context, c *redlatch.Client, name string) (*lock.Hold, error)
	channel func(name string) string
}{
	"mutex": {
		func(ctx context.Context, c *redlatch.Client, name string) (*lock.Hold, error) {
			return c.Mutex(name).Lock(ctx)
		},
		func(name string) string { return key.ForMutex(name).Channel },
	},
	"fair mutex": {
		func(ctx context.Context, c *redlatch.Client, name string) (*lock.Hold, error) {
			return c.FairMutex(name).Lock(ctx)
		},
		func(string) string { return key.ClientPrefix + "*" },
	},
}

// firstEcho returns a func that waits until a server has sent an echo to its subscribers. A client
// that has had none does not judge its connection.
func firstEcho(t *testing.T, s *redistest.Server) (came func()) {
	t.Helper()
	echoes := s.Control().PSubscribe(t.Context(), "*redlatch-echo:*")
	t.Cleanup(func() { _ = echoes.Close() })
	_, err := echoes.Receive(t.Context())
	require.NoError(t, err)
	return func() { stage.Within(t, echoes.Channel(), "an echo comes back") }
}

// deafEvents returns a recorder and a func that waits for the first end of a connection, and
// returns why it ended.
func deafEvents(t *testing.T) (r *stage.Recorder, end func() error) {
	r = &stage.Recorder{}
	return r, func() error {
		t.Helper()
		require.Eventually(t, func() bool { return len(r.Of(event.Disconnected)) > 0 }, stage.Guard, time.Millisecond, "the connection is replaced")
		return r.Of(event.Disconnected)[0].Err
	}
}

func TestAConnectionToANodeThatLeftTheClusterIsReplaced(t *testing.T) {
	t.Parallel()
	for kind, k := range deafKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, 0)
			ctx := t.Context()
			r, end := deafEvents(t)
			holder := stage.LocksOn(t, c.Client(t), redlatch.WithLease(time.Hour))
			waiter := stage.LocksOn(t, c.Client(t), append(onlyMessages, redlatch.WithObserver(r))...)
			third := c.Nodes[2]
			echoed := firstEcho(t, third)
			ofThird, name := stage.NamesOfShard(2, 1)[0], stage.NamesOfShard(0, 1)[0]

			_, err := holder.Mutex(ofThird).Lock(ctx)
			require.NoError(t, err)
			first := make(chan error, 1)
			go func() { _, err := waiter.Mutex(ofThird).Lock(ctx); first <- err }()
			require.Eventually(t, func() bool { return listens(t, third, key.ForMutex(ofThird).Channel) }, stage.Guard, time.Millisecond)

			held, err := k.lock(ctx, holder, name)
			require.NoError(t, err)
			got := make(chan *lock.Hold, 1)
			go func() {
				if h, err := k.lock(ctx, waiter, name); err == nil {
					got <- h
				}
			}()
			require.Eventually(t, func() bool { return listens(t, third, k.channel(name)) }, stage.Guard, time.Millisecond)
			echoed()
			c.Remove(t, third)
			require.ErrorContains(t, end(), "gets no messages")
			require.Eventually(t, func() bool {
				return listens(t, c.Nodes[0], k.channel(name)) || listens(t, c.Nodes[1], k.channel(name))
			}, stage.Guard, time.Millisecond)
			require.NoError(t, held.Unlock(ctx))
			stage.Within(t, got, "a message hands the lock over")
		})
	}
}

func TestAConnectionToAnOldMasterIsReplaced(t *testing.T) {
	t.Parallel()
	for kind, k := range deafKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p, bed := newWatched(t)
			ctx := t.Context()
			for _, s := range append([]*redistest.Server{bed.Master}, bed.Replicas...) {
				require.NoError(t, s.Control().Do(ctx, "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all").Err())
			}
			client := func(options ...redlatch.Option) *redlatch.Client {
				return stage.LocksOn(t, bed.Client(t, func(o *redis.FailoverOptions) { o.Username, o.Password = "app", "secret" }), options...)
			}
			r, end := deafEvents(t)
			holder := client(redlatch.WithLease(time.Hour))
			waiter := client(append(onlyMessages, redlatch.WithObserver(r))...)
			echoed, name := firstEcho(t, p.Master), redistest.Name(t)
			held, err := k.lock(ctx, holder, name)
			require.NoError(t, err)
			got := make(chan *lock.Hold, 1)
			go func() {
				if h, err := k.lock(ctx, waiter, name); err == nil {
					got <- h
				}
			}()
			require.Eventually(t, func() bool { return listens(t, p.Master, k.channel(name)) }, stage.Guard, time.Millisecond)
			echoed()
			p.Replicated()

			// The sentinels get no more answers of the master, and cannot make it a replica. All
			// others are served as before.
			require.NoError(t, p.Master.Control().Do(ctx, "ACL", "SETUSER", "default", "-@all").Err())
			require.Eventually(t, func() bool {
				// Sentinels close all connections of the server that they promote.
				info, err := p.Replica.Control().Info(ctx, "replication").Result()
				return err == nil && strings.Contains(info, "role:master")
			}, stage.Guard, 10*time.Millisecond)
			require.ErrorContains(t, end(), "gets no messages")
			require.Eventually(t, func() bool { return listens(t, p.Replica, k.channel(name)) }, stage.Guard, time.Millisecond)
			require.NoError(t, held.Unlock(ctx))
			stage.Within(t, got, "a message hands the lock over")
		})
	}
}
