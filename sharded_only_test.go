package redlatch_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// The goal of this file: messages wake waiters on managed services that have sharded channels only.
// Such a service turns PUBLISH and SUBSCRIBE into SPUBLISH and SSUBSCRIBE, also inside scripts.

// shardedOnly is a cluster that behaves like such a service.
type shardedOnly struct {
	*testing.T
	*redistest.ShardedOnly
	nodes []*redistest.Server
}

func startShardedOnly(t *testing.T, masters int) *shardedOnly {
	t.Helper()
	c := redistest.StartCluster(t, masters, 0)
	if strings.HasPrefix(c.Nodes[0].Version(), "6.") {
		t.Skip("left out: Redis before 7 has no sharded channels")
	}
	return &shardedOnly{t, redistest.NewShardedOnly(c), c.Nodes}
}

// listened waits until somebody listens to a channel that matches the pattern, and returns the
// channel.
func (s *shardedOnly) listened(pattern string) (channel string) {
	s.Helper()
	require.Eventually(s, func() bool {
		for _, node := range s.nodes {
			found, err := node.Control().PubSubShardChannels(s.Context(), pattern).Result()
			require.NoError(s, err)
			if len(found) > 0 {
				channel = found[0]
			}
		}
		return channel != ""
	}, stage.Guard, time.Millisecond, pattern)
	return channel
}

// locked is a lock of any kind that somebody has.
type locked struct{ unlock func(context.Context) error }

// lockKinds acquires a lock of each kind.
var lockKinds = map[string]func(ctx context.Context, c *redlatch.Client, name string) (locked, error){
	"mutex": func(ctx context.Context, c *redlatch.Client, name string) (locked, error) {
		h, err := c.Mutex(name).Lock(ctx)
		return locked{func(ctx context.Context) error { return h.Unlock(ctx) }}, err
	},
	"fair mutex": func(ctx context.Context, c *redlatch.Client, name string) (locked, error) {
		h, err := c.FairMutex(name).Lock(ctx)
		return locked{func(ctx context.Context) error { return h.Unlock(ctx) }}, err
	},
	"semaphore": func(ctx context.Context, c *redlatch.Client, name string) (locked, error) {
		p, err := c.Semaphore(name, 1).Acquire(ctx, 1)
		return locked{func(ctx context.Context) error { return p.Release(ctx) }}, err
	},
}

// A client waits for ten locks of each kind. It would not poll stage.Within the time of the test,
// so only messages wake its waiters.
func TestMessagesWakeWaitersInAClusterWithShardedChannelsOnly(t *testing.T) {
	t.Parallel()
	for _, masters := range []int{1, 3} {
		t.Run(fmt.Sprint(masters, " masters"), func(t *testing.T) {
			t.Parallel()
			s := startShardedOnly(t, masters)
			log := &stage.Logbook{}
			// With the second prefix, the client asks on one node whether it may publish to a
			// channel on another.
			prefix := map[int]string{1: "", 3: "app:"}[masters]
			options := append(slices.Clone(onlyMessages), redlatch.WithPrefix(prefix))
			holder := stage.LocksOn(t, s.Client(t), options...)
			waiter := stage.LocksOn(t, s.Client(t), append(options, redlatch.WithLogger(slog.New(log)))...)
			for kind, lock := range lockKinds {
				names, held, got := []string{}, []locked{}, []chan error{}
				for i := range 10 {
					names = append(names, fmt.Sprintf([]string{"%s %d", "a {%s %d} b"}[i%2], kind, i))
					h, err := lock(t.Context(), holder, names[i])
					require.NoError(t, err)
					held, got = append(held, h), append(got, make(chan error, 1))
				}
				for i, name := range names {
					go func() {
						h, err := lock(t.Context(), waiter, name)
						if err == nil {
							err = h.unlock(t.Context())
						}
						got[i] <- err
					}()
				}
				for i, name := range names {
					if kind == "mutex" {
						s.listened(key.ForMutex(prefix + name).Channel)
					} else {
						s.listened("redlatch:client:*" + strings.TrimPrefix(key.ClientInSlot("", prefix+name), key.ClientPrefix))
					}
					require.NoError(t, held[i].unlock(t.Context()))
					require.NoError(t, stage.Within(t, got[i], kind+": a message wakes the waiter"))
				}
			}
			if masters == 1 { // one of three masters refuses the channels of the others, which is another error
				require.Positive(t, s.Refused(), "the service refuses channels of several slots")
				require.Empty(t, log.Lines())
			}
		})
	}
}

// An operator removes waiters, and a message notifies them.
func TestARemovedWaiterIsNotifiedInAClusterWithShardedChannelsOnly(t *testing.T) {
	t.Parallel()
	s := startShardedOnly(t, 1)
	holder, waiter := stage.LocksOn(t, s.Client(t), onlyMessages...), stage.LocksOn(t, s.Client(t), onlyMessages...)
	for kind, queue := range map[string]stage.WaitingLine{"fair mutex": holder.FairMutex("fair mutex"), "semaphore": holder.Semaphore("semaphore", 1)} {
		_, err := lockKinds[kind](t.Context(), holder, kind)
		require.NoError(t, err)
		got := make(chan error, 1)
		go func() { _, err := lockKinds[kind](t.Context(), waiter, kind); got <- err }()
		s.listened("redlatch:client:*:{" + kind + "}")
		waiters, _, err := queue.Queue(t.Context(), 0, 1)
		require.NoError(t, err)
		require.Len(t, waiters, 1)
		removed, err := queue.RemoveWaiter(t.Context(), waiters[0].ID)
		require.NoError(t, err)
		require.True(t, removed)
		require.ErrorIs(t, stage.Within(t, got, kind), redlatch.ErrRemoved)
	}
}

// In an ordinary cluster, a client listens to one channel for all of its waiters in queues.
func TestAClusterWithAllChannelsNeedsOneForTheWaitersOfAClient(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	holder, waiter := stage.LocksOn(t, c.Client(t), onlyMessages...), stage.LocksOn(t, c.Client(t), onlyMessages...)
	for _, kind := range []string{"fair mutex", "semaphore"} {
		for i := range 5 {
			name := fmt.Sprint(kind, i)
			held, err := lockKinds[kind](t.Context(), holder, name)
			require.NoError(t, err)
			got := make(chan error, 1)
			go func() {
				h, err := lockKinds[kind](t.Context(), waiter, name)
				if err == nil {
					err = h.unlock(t.Context())
				}
				got <- err
			}()
			require.Eventually(t, func() bool {
				return listens(t, c.Nodes[0], "redlatch:client:*") || listens(t, c.Nodes[1], "redlatch:client:*") || listens(t, c.Nodes[2], "redlatch:client:*")
			}, stage.Guard, time.Millisecond)
			for _, node := range c.Nodes {
				require.False(t, listens(t, node, "redlatch:client:*{*"), "a channel for one name")
			}
			require.NoError(t, held.unlock(t.Context()))
			require.NoError(t, stage.Within(t, got, "a message wakes the waiter"))
		}
	}
}
