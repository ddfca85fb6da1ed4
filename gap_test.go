package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"net"
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

// slowJoin delays the answer of the first script about a name, and says when other scripts have run
// since. It can refuse new connections.
type slowJoin struct {
	name         string
	done         atomic.Bool
	ran, answer  chan struct{}
	asked        atomic.Bool // a waiter has asked for its grant
	cut, renewed atomic.Bool // the subscription is cut; a heartbeat has run since
	refuses      refusesDials
}

func (l *slowJoin) DialHook(next redis.DialHook) redis.DialHook { return l.refuses.DialHook(next) }

func (l *slowJoin) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		isBeat := slices.Contains([]string{"semaphore/beat", "fair/beat"}, stage.ScriptOf(cmd))
		switch about := fmt.Sprint(cmd.Args()); {
		case err != nil:
		case isBeat && l.cut.Load():
			l.renewed.Store(true)
		case isBeat:
			l.asked.Store(true)
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

// refusesDials is a hook that refuses new connections now and then.
type refusesDials struct{ on atomic.Bool }

func (l *refusesDials) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.on.Load() {
			return nil, errors.New("connection refused")
		}
		return next(ctx, network, addr)
	}
}

func (l *refusesDials) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (l *refusesDials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A waiter in a queue cannot listen, and polls. Its lock is freed before it can, so the message is
// lost. It asks when its first subscription is confirmed.
func TestAWaiterThatCouldNotListenAsksWhenItCan(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"semaphore", "fair mutex"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			rdb, hook := srv.Client(t), &refusesDials{}
			rdb.AddHook(hook)
			holder, waiter := stage.LocksOn(t, srv.Client(t), onlyMessages...), stage.LocksOn(t, rdb, onlyMessages...)
			warm, err := lockKinds[kind](t.Context(), waiter, "another") // makes a connection for commands
			require.NoError(t, err)
			require.NoError(t, warm.unlock(t.Context()))
			held, err := lockKinds[kind](t.Context(), holder, "door")
			require.NoError(t, err)
			hook.on.Store(true)
			got := make(chan error, 1)
			go func() { _, err := lockKinds[kind](t.Context(), waiter, "door"); got <- err }()
			queue := map[string]stage.WaitingLine{"semaphore": holder.Semaphore("door", 1), "fair mutex": holder.FairMutex("door")}[kind]
			require.Eventually(t, func() bool {
				waiters, _, err := queue.Queue(t.Context(), 0, 1)
				return err == nil && len(waiters) == 1
			}, stage.Guard, time.Millisecond)
			require.NoError(t, held.unlock(t.Context()))
			hook.on.Store(false)
			require.NoError(t, stage.Within(t, got, "the waiter asks"))
		})
	}
}

// Redis has queued a waiter, and the answer comes late. Meanwhile the connection for messages
// breaks, the message of the grant is lost, and the connection comes back. The waiter asks when it
// knows that it waits.
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
			wait("first") // has the subscription, and asks when it is confirmed
			require.Eventually(t, hook.asked.Load, stage.Guard, time.Millisecond)
			got, unlock := wait(second)
			<-hook.ran
			hook.cut.Store(true)
			hook.refuses.on.Store(true)
			require.NoError(t, srv.Control().Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
			require.NoError(t, unlock(t.Context()))
			hook.refuses.on.Store(false)
			require.Eventually(t, hook.renewed.Load, stage.Guard, time.Millisecond, "the first waiter asks again")
			close(hook.answer)
			require.NoError(t, stage.Within(t, got, "the waiter asks"))
		})
	}
}
