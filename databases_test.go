package redlatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// Clients of database 0 and of database 1 use the same names. Keys belong to a database, so the
// locks are different ones. Channels belong to the whole server. So a message about one lock makes
// a waiter of the other ask, which is all.
func TestDatabasesShareMessagesButNoLocks(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	ctx := t.Context()
	client := func(db int, options ...redlatch.Option) *redlatch.Client {
		return stage.LocksOn(t, s.Client(t, func(o *redis.Options) { o.DB = db }), append(options, onlyMessages...)...)
	}
	for kind, lock := range lockKinds {
		name := kind
		channel := key.ForMutex(name).Channel
		var held [2]locked
		var got [2]chan locked
		for db := range 2 {
			var err error
			held[db], err = lock(ctx, client(db), name)
			require.NoError(t, err, "the lock of the other database excludes nobody")
		}
		for db := range 2 {
			got[db] = make(chan locked, 1)
			waiter := client(db)
			go func() {
				if h, err := lock(ctx, waiter, name); err == nil {
					got[db] <- h
				}
			}()
		}
		require.Eventually(t, func() bool {
			if kind != "mutex" {
				channel = "redlatch:client:*"
			}
			names, err := s.Control().PubSubChannels(ctx, channel).Result()
			require.NoError(t, err)
			if kind != "mutex" {
				return len(names) == 2 && queuedIn(t, s, 0, kind) == 1 && queuedIn(t, s, 1, kind) == 1
			}
			return s.Control().PubSubNumSub(ctx, channel).Val()[channel] == 2
		}, stage.Guard, time.Millisecond, kind+": both wait")
		before := evals(t, s.Control())
		require.NoError(t, held[0].unlock(ctx))
		first := stage.Within(t, got[0], kind+": the waiter of this database gets the lock")
		if kind == "mutex" { // the release, the waiter that gets the lock, and the other one
			require.Eventually(t, func() bool { return evals(t, s.Control()) >= before+3 }, stage.Guard, time.Millisecond)
		}
		require.NoError(t, first.unlock(ctx))
		require.Empty(t, got[1], kind+": the other lock is still held")
		require.NoError(t, held[1].unlock(ctx))
		second := stage.Within(t, got[1], kind+": the waiter of the other database gets its lock")
		require.NoError(t, second.unlock(ctx))
		require.Eventually(t, func() bool {
			names, err := s.Control().PubSubChannels(context.Background(), "redlatch:client:*").Result()
			return err == nil && len(names) == 0
		}, stage.Guard, time.Millisecond, "the waiters of this kind listen no more")
	}
}

// queuedIn counts the waiters in the queue of the name of a kind.
func queuedIn(t *testing.T, s *redistest.Server, db int, kind string) int64 {
	t.Helper()
	rdb := s.Client(t, func(o *redis.Options) { o.DB = db })
	defer rdb.Close()
	return rdb.ZCard(t.Context(), map[string]string{"fair mutex": key.ForMutex(kind).Queue, "semaphore": key.ForSemaphore(kind).Queue}[kind]).Val()
}
