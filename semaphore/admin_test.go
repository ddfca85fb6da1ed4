package semaphore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// managerOn makes a client in the bubble. It ends with the test.
func managerOn(t *testing.T, rdb *redis.Client) *manager {
	t.Helper()
	s := session.New(session.Config{Redis: rdb, Deployment: node.Deployment{PubSub: node.SubscriberOf(rdb)}})
	f := newManager(s)
	t.Cleanup(func() {
		s.BeginClose()
		_ = acquisition.CloseAll(context.Background(), f.Held())
		_ = s.FinishClose(context.Background())
	})
	return f
}

func runs(script string) func([]string) bool {
	return func(cmd []string) bool { return lua.ScriptName(cmd) == script }
}

func acquire(t *testing.T, s *Semaphore, n int) *Permit {
	t.Helper()
	p, err := s.Acquire(t.Context(), n)
	require.NoError(t, err)
	return p
}

// warm makes the server know the scripts of operators, and the client the clock of the server.
func warm(t *testing.T, f *manager) {
	t.Helper()
	s := f.newSemaphore("known", 2, new(settings.Default))
	p, q := acquire(t, s, 1), acquire(t, s, 1)
	_, err := s.ForceRelease(t.Context(), p.ID())
	require.NoError(t, err)
	require.NoError(t, q.Release(t.Context()))
	require.ErrorIs(t, p.Release(t.Context()), lockerr.ErrLost)
	_, err = s.Resize(t.Context(), 2)
	require.NoError(t, err)
}

// The server has one permit more than Inspect shows, and does not know since when it has them.
func TestInspectShowsFiveHundredPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		s := managerOn(t, v.Client()).newSemaphore("render", 1000, new(settings.Default))
		require.NoError(t, acquire(t, s, 1).Release(t.Context()))
		var entries []redis.Z
		for i := range 501 {
			entries = append(entries, redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: fmt.Sprintf("client:%d#1", i)})
		}
		require.NoError(t, v.Client().ZAdd(t.Context(), key.ForSemaphore("render").Permits, entries...).Err())
		info, err := s.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, 501, info.InUse)
		require.Len(t, info.Holders, 500)
		for _, h := range info.Holders {
			require.Zero(t, h.Since)
			require.Equal(t, time.Minute, h.Remaining)
		}
	})
}

func TestAFailedCallOfAnOperatorReturnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		f := managerOn(t, v.Client())
		good, bad := f.newSemaphore("render", 2, new(settings.Default)), f.newSemaphore("", 2, new(settings.Default))
		requireNothing := func(s *Semaphore, limit int, is error) {
			t.Helper()
			before, err := s.Resize(t.Context(), limit)
			require.ErrorIs(t, err, is)
			require.Zero(t, before)
			units, err := s.ForceRelease(t.Context(), "client:1")
			if s == bad || limit > 0 {
				require.ErrorIs(t, err, is)
			}
			require.Zero(t, units)
		}
		requireNothing(good, 0, lockerr.ErrConfig)
		requireNothing(bad, 2, lockerr.ErrConfig)
		v.Inject(redistest.Rule{Match: redistest.Any(), Action: redistest.Refuse("NOPERM no")})
		requireNothing(good, 2, lockerr.ErrRefused)
		info, err := good.Inspect(t.Context())
		require.ErrorIs(t, err, lockerr.ErrRefused)
		require.Zero(t, info)
		for _, s := range []*Semaphore{good, bad} {
			waiters, length, err := s.Queue(t.Context(), 0, 10)
			require.Error(t, err)
			require.Empty(t, waiters)
			require.Zero(t, length)
			removed, err := s.RemoveWaiter(t.Context(), "client:1")
			require.Error(t, err)
			require.False(t, removed)
		}
	})
}

// queueUp queues waiters of another client, which count as alive and send nothing.
func queueUp(t *testing.T, rdb *redis.Client, name string, n int) {
	t.Helper()
	var queued, beats []redis.Z
	for i := range n {
		member := fmt.Sprintf("22222222-2222-2222-2222-222222222222:%d 1 60000 30000 other", i)
		queued = append(queued, redis.Z{Score: float64(time.Now().UnixMicro() + int64(i)), Member: member})
		beats = append(beats, redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: member})
	}
	k := key.ForSemaphore(name)
	require.NoError(t, rdb.ZAdd(t.Context(), k.Queue, queued...).Err())
	require.NoError(t, rdb.ZAdd(t.Context(), k.Alive, beats...).Err())
}

func waiting(t *testing.T, rdb *redis.Client, name string) int {
	t.Helper()
	n, err := rdb.ZCard(t.Context(), key.ForSemaphore(name).Queue).Result()
	require.NoError(t, err)
	return int(n)
}

// One command serves fifty waiters. The client sends the next ones in the background, and sends
// them again if the server loads its data.
func TestWaitersBehindTheFirstFiftyAreServedAfterAFault(t *testing.T) {
	const waiters = 110
	for script, call := range map[string]func(t *testing.T, s *Semaphore, p *Permit){
		"semaphore/release": func(t *testing.T, _ *Semaphore, p *Permit) {
			require.NoError(t, p.Release(t.Context()))
		},
		"semaphore/resize": func(t *testing.T, s *Semaphore, _ *Permit) {
			before, err := s.Resize(t.Context(), 2*waiters)
			require.NoError(t, err)
			require.Equal(t, waiters, before)
		},
		"semaphore/force_release": func(t *testing.T, s *Semaphore, p *Permit) {
			units, err := s.ForceRelease(t.Context(), p.ID())
			require.NoError(t, err)
			require.Equal(t, waiters, units)
		},
	} {
		t.Run(script, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				link := v.Another()
				f := managerOn(t, link.Client())
				warm(t, f)
				s := f.newSemaphore("render", waiters, new(settings.Default))
				held := acquire(t, s, waiters)
				queueUp(t, v.Client(), "render", waiters)
				fault := link.Inject(redistest.Rule{Match: runs(script), Skip: 1, Action: redistest.Refuse("LOADING Redis is loading")})
				call(t, s, held)
				require.Equal(t, waiters-50, waiting(t, v.Client(), "render"))
				time.Sleep(5 * time.Second)
				require.Positive(t, fault.Bites())
				fault.Disarm()
				time.Sleep(5 * time.Second)
				require.Zero(t, waiting(t, v.Client(), "render"))
				_ = held.Release(context.Background())
			})
		})
	}
}

// Each has a later stamp than the one before, although the clock stands still.
func TestResizesOfOneInstantCostOneCommandEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		f := managerOn(t, v.Client())
		warm(t, f)
		s := f.newSemaphore("render", 8, new(settings.Default))
		v.Record()
		for limit := range 5 {
			before, err := s.Resize(t.Context(), limit+1)
			require.NoError(t, err)
			require.Equal(t, limit, before)
		}
		sent := 0
		for _, cmd := range v.Recorded() {
			if runs("semaphore/resize")(cmd) {
				sent++
			}
		}
		require.Equal(t, 5, sent)
	})
}

func TestAManagerCountsPermitsAndWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := managerOn(t, redistest.Bubble(t).Client())
		s := f.newSemaphore("render", 2, new(settings.Default))
		one, two := acquire(t, s, 1), acquire(t, s, 1)
		require.Equal(t, 2, f.Len())
		ctx, stop := context.WithCancel(t.Context())
		for range 3 {
			go func() { _, _ = s.Acquire(ctx, 1) }()
		}
		synctest.Wait()
		require.Equal(t, 5, f.Len())
		require.Len(t, f.Held(), 2)
		stop()
		synctest.Wait()
		require.Equal(t, 2, f.Len())
		require.NoError(t, one.Release(t.Context()))
		require.NoError(t, two.Release(t.Context()))
		require.Zero(t, f.Len())
		require.Empty(t, f.Held())
	})
}

func TestARenewalThatFailsSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		rdb := v.Client()
		f := managerOn(t, rdb)
		p := acquire(t, f.newSemaphore("render", 2, new(settings.Default)), 2)
		requests := []watchdog.Renewal{{Key: "render", ID: p.ID(), Lease: time.Minute}, {Key: "render", ID: "client:1", Lease: time.Minute}}
		answers, err := f.renew(t.Context(), rdb, requests)
		require.NoError(t, err)
		require.Equal(t, []watchdog.Result{watchdog.Renewed, watchdog.Gone}, answers)
		v.Inject(redistest.Rule{Match: runs("semaphore/renew"), Action: redistest.Refuse("NOPERM no")})
		answers, err = f.renew(t.Context(), rdb, requests)
		require.ErrorContains(t, err, "NOPERM")
		require.Empty(t, answers)
		require.True(t, p.Trusted())
	})
}

func TestTrustInAGrantEndsBeforeItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &request{Semaphore: newManager(session.New(session.Config{})).newSemaphore("render", 2, new(settings.Default))}
		sent := time.Now()
		time.Sleep(29*time.Second - 1)
		require.False(t, w.TrustExpired(sent))
		time.Sleep(time.Nanosecond)
		require.True(t, w.TrustExpired(sent))
	})
}

// A waiter that cannot reach the server asks often enough to show within a heartbeat that it is
// alive.
func TestAWaiterPausesForAThirdOfItsHeartbeat(t *testing.T) {
	f := newManager(session.New(session.Config{}))
	st := settings.Default
	st.Heartbeat = 6 * time.Second
	w := &request{Semaphore: f.newSemaphore("render", 2, &st), session: f.session}
	require.Equal(t, 2*time.Second, w.waitOperation().MaxBackoff)
}
