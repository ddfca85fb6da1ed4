package session

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// A node that failed makes go-redis learn the topology anew, twice a second at most.
func TestAFailedNodeReloadsTheTopology(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reloads atomic.Int32
		topo := topology{nodes: nodes{ask: noSlots}, reload: func(context.Context) { reloads.Add(1) }, within: t.Context()}
		topo.cluster.Store(true)
		topo.onFailure(t.Context(), io.EOF)
		synctest.Wait()
		require.EqualValues(t, 1, reloads.Load())
		for range 100 {
			time.Sleep(10 * time.Millisecond)
			topo.onFailure(t.Context(), io.EOF)
		}
		synctest.Wait()
		require.EqualValues(t, 3, reloads.Load())
	})
}

// The first reload may ask the dead node, and hang. Others go on, up to a limit, and a hook that
// panics or ends its goroutine takes no place for ever.
func TestAReloadThatHangsDoesNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var begun atomic.Int32
		closing, cancel := context.WithCancel(t.Context())
		topo := topology{nodes: nodes{ask: noSlots}, within: closing, reload: func(ctx context.Context) {
			switch begun.Add(1) {
			case 1:
				panic("a hook")
			case 2:
				runtime.Goexit()
			}
			<-ctx.Done()
			<-release // go-redis may ignore the end of ctx
		}}
		topo.cluster.Store(true)
		for range 20 {
			topo.onFailure(t.Context(), io.EOF)
			time.Sleep(reloadPause)
		}
		require.EqualValues(t, 2+reloadsAtOnce, begun.Load())
		close(release)
		synctest.Wait()
		topo.onFailure(t.Context(), io.EOF)
		cancel()
		synctest.Wait()
		require.Zero(t, topo.running, "closing ends the reload")
	})
}

func TestWhichFailuresReloadTheTopology(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	passed, release := context.WithCancelCause(t.Context())
	release(ownDeadline{why: "gave up with the end of trust"})
	overdue, end := context.WithCancelCause(t.Context())
	end(context.DeadlineExceeded)
	for name, c := range map[string]struct {
		ctx    context.Context
		err    error
		reload bool
	}{
		"no error":                        {ctx: t.Context()},
		"a connection that ended":         {ctx: t.Context(), err: io.EOF, reload: true},
		"no connection":                   {ctx: t.Context(), err: &net.OpError{Op: "dial", Err: errors.New("refused")}, reload: true},
		"no answer in time":               {ctx: late, err: context.DeadlineExceeded, reload: true},
		"a cluster that is down":          {ctx: t.Context(), err: answer("CLUSTERDOWN the cluster is down"), reload: true},
		"a caller that left":              {ctx: cancelled, err: context.Canceled},
		"a script that the node forgot":   {ctx: t.Context(), err: answer("NOSCRIPT no matching script")},
		"a node in a long script":         {ctx: t.Context(), err: answer("BUSY running a script")},
		"a command that was void":         {ctx: t.Context(), err: errVoid},
		"renewals that are refused":       {ctx: t.Context(), err: errRenewalRefused},
		"a hook that ended a goroutine":   {ctx: t.Context(), err: sender.ErrGoexit},
		"a node without replicas":         {ctx: t.Context(), err: answer("NOREPLICAS not enough good replicas")},
		"a node with too many clients":    {ctx: t.Context(), err: answer("ERR max number of clients reached")},
		"a cancel because of a deadline":  {ctx: overdue, err: sender.ErrUnanswered, reload: true},
		"a slot that migrates":            {ctx: t.Context(), err: answer("TRYAGAIN multiple keys")},
		"an Unlock whose deadline passed": {ctx: passed, err: sender.ErrUnanswered, reload: true},
		"a refusal":                       {ctx: t.Context(), err: answer("NOPERM no permission")},
		"a go-redis client that is over":  {ctx: t.Context(), err: redis.ErrClosed},
	} {
		require.Equal(t, c.reload, saysNodeFailed(c.ctx, c.err), name)
	}
	(&topology{}).onFailure(t.Context(), io.EOF) // no cluster
}

// A client that only holds locks finds out by its renewals.
func TestARenewalThatFailedReloadsTheTopology(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reloads atomic.Int32
		s := New(Config{Deployment: node.Deployment{ClusterSlots: noSlots, ReloadTopology: func(context.Context) { reloads.Add(1) }}})
		s.FoundCluster()
		s.SetRenewer(Holds, func(context.Context, lua.Redis, []watchdog.Renewal) ([]watchdog.Result, error) { return nil, io.EOF })
		s.topology.keepFresh() // so that the failure alone causes the next
		synctest.Wait()
		require.EqualValues(t, 1, reloads.Load())
		time.Sleep(reloadPause)
		_, err := s.renew(t.Context(), s.Group(Holds, "door"), []watchdog.Renewal{{Key: "door", ID: "a:1"}})
		require.ErrorIs(t, err, io.EOF)
		synctest.Wait()
		require.EqualValues(t, 2, reloads.Load())
		s.BeginClose()
		require.NoError(t, s.FinishClose(t.Context()))
	})
}

// Closing ends a reload, and waits for it. The reload counts as ended when go-redis has returned.
func TestClosingWaitsForAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reloading := false
		s := fresh(t, Config{
			Redis: answers{}, Deployment: node.Deployment{
				ClusterSlots: func(context.Context) ([]node.SlotRange, error) { return nil, nil },
				ReloadTopology: func(ctx context.Context) {
					reloading = true
					<-ctx.Done()
					time.Sleep(5 * time.Millisecond)
					reloading = false
				},
			},
		})
		s.FoundCluster()
		s.topology.keepFresh()
		synctest.Wait()
		require.True(t, reloading)
		s.BeginClose()
		require.NoError(t, s.FinishClose(t.Context()))
		require.False(t, reloading)
	})
}

// While a client does not know the masters, it asks more often, but not for ever: it may never be
// allowed to.
func TestUnknownMastersAreSoughtSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		var known []node.SlotRange
		s := fresh(t, Config{Redis: answers{}, Deployment: node.Deployment{ClusterSlots: func(context.Context) ([]node.SlotRange, error) { asked++; return known, nil }}})
		s.FoundCluster()
		ask := func() int {
			before := asked
			s.topology.keepFresh()
			synctest.Wait()
			return asked - before
		}
		require.Equal(t, 1, ask())
		for pause := 2 * reloadPause; pause < reloadInterval; pause *= 2 {
			time.Sleep(pause - time.Millisecond)
			require.Zero(t, ask())
			time.Sleep(time.Millisecond)
			require.Equal(t, 1, ask(), pause)
		}
		time.Sleep(reloadInterval)
		require.Equal(t, 1, ask())
		known = []node.SlotRange{{First: 0, Last: 16383, Master: "a"}}
		time.Sleep(reloadInterval)
		require.Equal(t, 1, ask())
		time.Sleep(reloadInterval - time.Millisecond)
		require.Zero(t, ask())
	})
}
