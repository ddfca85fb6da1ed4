package redlatch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// slowJoin delays the answer of the first script about a name, and says when other scripts have run since.
type slowJoin struct {
	name         string
	done         atomic.Bool
	ran, answer  chan struct{}
	cut, renewed atomic.Bool // the subscription is cut; a heartbeat has run since
}

func (l *slowJoin) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *slowJoin) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		isBeat := slices.Contains([]string{"semaphore/beat", "fair/beat"}, stage.ScriptOf(cmd))
		switch about := fmt.Sprint(cmd.Args()); {
		case err != nil:
		case isBeat && l.cut.Load():
			l.renewed.Store(true)
		case strings.Contains(about, l.name) && l.done.CompareAndSwap(false, true):
			close(l.ran)
			<-l.answer
		}
		return err
	}
}

func (l *slowJoin) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(l, next)
}

// Redis has queued a waiter, and the answer comes late. Meanwhile the connection for messages breaks, the message of
// the grant is lost, and the connection comes back. The waiter asks when it knows that it waits.
func TestAWaiterWhoseSubscriptionBreaksDuringTheJoinAsks(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"semaphore", "fair mutex"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			rdb, second := srv.Client(t), redistest.Name(t)
			hook := &slowJoin{name: second, ran: make(chan struct{}), answer: make(chan struct{})}
			rdb.AddHook(hook)
			holder, waiter := stage.LocksOn(t, srv.Client(t), onlyMessages...), stage.LocksOn(t, rdb, onlyMessages...)
			wait := func(name string) (got chan error, unlock func(context.Context) error) {
				held, err := lockKinds[kind](t.Context(), holder, name)
				require.NoError(t, err)
				got = make(chan error, 1)
				ctx, cancel := context.WithCancel(t.Context())
				t.Cleanup(cancel)
				go func() { _, err := lockKinds[kind](ctx, waiter, name); got <- err }()
				return got, held.unlock
			}
			wait("first") // has the subscription
			require.Eventually(t, func() bool { return listens(t, srv, "redlatch:client:*") }, stage.Guard, time.Millisecond)
			got, unlock := wait(second)
			<-hook.ran
			hook.cut.Store(true)
			require.NoError(t, srv.Control().Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
			require.NoError(t, unlock(t.Context()))
			require.Eventually(t, hook.renewed.Load, stage.Guard, time.Millisecond, "the first waiter asks again")
			close(hook.answer)
			require.NoError(t, stage.Within(t, got, "the waiter asks"))
		})
	}
}
