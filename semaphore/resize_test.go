package semaphore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/semaphore"
)

// operators has two clients that resize, one of them over a link of its own, and a client that
// works.
type operators struct {
	server         *redistest.Virtual
	link           *redistest.Virtual // of linked
	linked, direct *redlatch.Client
	worker         *redlatch.Client
}

// operatorsIn makes them. The server knows all scripts, and the clients know its clock.
func operatorsIn(t *testing.T) operators {
	t.Helper()
	v := redistest.Bubble(t)
	o := operators{server: v, link: v.Another()}
	o.linked, o.direct, o.worker = stage.LocksOn(t, o.link.Client()), stage.LocksOn(t, v.Client()), stage.LocksOn(t, v.Client())
	for _, c := range []*redlatch.Client{o.linked, o.direct, o.worker} {
		s := c.Semaphore("known", 5)
		p := stage.MustAcquire(t, s, 1)
		_, err := s.ForceRelease(t.Context(), p.ID())
		require.NoError(t, err)
		_, err = s.Resize(t.Context(), 5)
		require.NoError(t, err)
		inUse(t, s)
		_ = p.Release(t.Context())
	}
	return o
}

// unitWaiters starts n waiters for one unit each, which keep their units until done.
func unitWaiters(t *testing.T, s *semaphore.Semaphore, n int, done context.Context) {
	t.Helper()
	for range n {
		go func() {
			if p, err := s.Acquire(done, 1); err == nil {
				<-done.Done()
				_ = p.Release(context.Background())
			}
		}()
		synctest.Wait()
	}
}

// A Resize with many waiters takes several commands, and another Resize comes between them.
func TestAResizeInSeveralCommandsLeavesALaterOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := operatorsIn(t)
		done, stop := context.WithCancel(context.Background())
		held := stage.MustAcquire(t, o.worker.Semaphore("render", 10), 10)
		unitWaiters(t, o.worker.Semaphore("render", 10), 120, done)
		slow := o.link.Inject(redistest.Rule{Match: stage.Runs("semaphore/resize"), Skip: 1, Times: 1, Action: redistest.DelayRequest(100 * time.Millisecond)})
		earlier := make(chan error, 1)
		go func() {
			_, err := o.linked.Semaphore("render", 10).Resize(context.Background(), 100)
			earlier <- err
		}()
		time.Sleep(50 * time.Millisecond)
		before, err := o.direct.Semaphore("render", 10).Resize(t.Context(), 20)
		require.NoError(t, err)
		require.Equal(t, 100, before)
		require.NoError(t, stage.Within(t, earlier, "it is done, for another took over"))
		time.Sleep(time.Second)
		require.Equal(t, 1, slow.Bites())
		info := inUse(t, o.worker.Semaphore("render", 10))
		require.Equal(t, 20, info.Limit)
		require.Less(t, info.InUse, 100, "nobody is served within the earlier limit")
		stop()
		require.NoError(t, held.Release(context.Background()))
		time.Sleep(time.Minute)
	})
}

// The connection breaks after a Resize, and the client sends it again. The first copy arrives after
// the next Resize, of the same client or of another.
func TestALateCopyOfAResizeChangesNothing(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(operators) *redlatch.Client{
		"after one of the same client": func(o operators) *redlatch.Client { return o.linked },
		"after one of another":         func(o operators) *redlatch.Client { return o.direct },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := operatorsIn(t)
				p := stage.MustAcquire(t, o.worker.Semaphore("render", 8), 1)
				stuck := o.link.Inject(redistest.Rule{Match: stage.Runs("semaphore/resize"), Times: 1, Action: redistest.HoldBack()})
				go func() { stuck.Await(1); o.link.KillAll() }()
				_, err := o.linked.Semaphore("render", 8).Resize(t.Context(), 100)
				require.NoError(t, err)
				before, err := next(o).Semaphore("render", 8).Resize(t.Context(), 2)
				require.NoError(t, err)
				require.Equal(t, 100, before)
				time.Sleep(1500 * time.Millisecond)
				require.Len(t, stuck.Release(), 1)
				require.Equal(t, 2, inUse(t, o.worker.Semaphore("render", 8)).Limit)
				_, err = o.worker.Semaphore("render", 8).TryAcquire(t.Context(), 8)
				require.ErrorIs(t, err, redlatch.ErrConfig)
				require.NoError(t, p.Release(t.Context()))
			})
		})
	}
}

// A Resize takes effect although its client's guess of the server's clock lags. The same holds for
// a client that does not know the clock yet.
func TestAResizeByAClockThatLagsTakesEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := operatorsIn(t)
		slow := o.link.Inject(redistest.Rule{Match: stage.Runs("semaphore/resize"), Times: 1, Action: redistest.DelayReply(time.Second)})
		_, err := o.linked.Semaphore("other", 8).Resize(t.Context(), 9) // its guess is a second late now
		require.NoError(t, err)
		require.Equal(t, 1, slow.Bites())
		o.link.Record()
		for i, by := range []*redlatch.Client{o.direct, o.linked, o.direct, stage.LocksOn(t, o.server.Client()), o.linked, o.direct} {
			before, err := by.Semaphore("render", 8).Resize(t.Context(), 10+i)
			require.NoError(t, err)
			if i > 0 {
				require.Equal(t, 10+i-1, before)
			}
			require.Equal(t, 10+i, inUse(t, o.worker.Semaphore("render", 10+i)).Limit)
		}
		sent := 0
		for _, cmd := range o.link.Recorded() {
			if stage.Runs("semaphore/resize")(cmd) {
				sent++
			}
		}
		require.LessOrEqual(t, sent, 4, "two each")
	})
}

// A Resize gives up. Its command arrives after the first Resize of a client that did not know the
// server's clock.
func TestALateResizeUndoesNoneOfANewClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := operatorsIn(t)
		p := stage.MustAcquire(t, o.worker.Semaphore("render", 8), 1)
		stuck := o.link.Inject(redistest.Rule{Match: stage.Runs("semaphore/resize"), Times: 1, Action: redistest.HoldBack()})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { stuck.Await(1); cancel() }()
		_, err := o.linked.Semaphore("render", 8).Resize(ctx, 100)
		require.ErrorIs(t, err, redlatch.ErrIndeterminate)
		time.Sleep(time.Millisecond)
		before, err := stage.LocksOn(t, o.server.Client()).Semaphore("render", 8).Resize(t.Context(), 2)
		require.NoError(t, err)
		require.Equal(t, 8, before)
		require.Len(t, stuck.Release(), 1)
		require.Equal(t, 2, inUse(t, o.worker.Semaphore("render", 8)).Limit)
		require.NoError(t, p.Release(t.Context()))
	})
}

// Two resizes happen at one instant of virtual time, which is the stamp of both.
func TestResizesOfOneInstantBothTakeEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := operatorsIn(t)
		for i := range 10 {
			by := []*redlatch.Client{o.linked, o.direct}[i%2]
			_, err := by.Semaphore("render", 8).Resize(t.Context(), 10+i)
			require.NoError(t, err)
			require.Equal(t, 10+i, inUse(t, o.worker.Semaphore("render", 8)).Limit)
		}
	})
}

// An answer is lost, another Resize comes between, and then Redis does not answer any more. The
// first Resize may have taken effect.
func TestASupersededResizeMayHaveTakenEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := operatorsIn(t)
		lost := o.link.Inject(redistest.Rule{Match: stage.Runs("semaphore/resize"), Times: 1, Action: redistest.LoseReply()})
		o.link.Inject(redistest.Rule{Match: stage.Runs("semaphore/resize"), Skip: 1, Action: redistest.Refuse("LOADING Redis is loading")})
		failed := make(chan error, 1)
		go func() {
			_, err := o.linked.Semaphore("render", 8).Resize(t.Context(), 9) // its attempts are shorter than the read timeout
			failed <- err
		}()
		lost.Await(1)
		time.Sleep(time.Millisecond)
		_, err := o.direct.Semaphore("render", 8).Resize(t.Context(), 10)
		require.NoError(t, err)
		require.ErrorIs(t, stage.Within(t, failed, "it gives up"), redlatch.ErrIndeterminate)
	})
}

// The answer of the first command says what was done, whatever happens to the commands that serve
// the other waiters.
func TestErrorsOfFurtherCommandsHideNoAnswer(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{"LOADING Redis is loading", "NOPERM no", "lost"} {
		for script, call := range map[string]func(o operators, p *semaphore.Permit) error{
			"semaphore/release": func(_ operators, p *semaphore.Permit) error { return p.Release(context.Background()) },
			"semaphore/resize": func(o operators, _ *semaphore.Permit) error {
				before, err := o.linked.Semaphore("render", 120).Resize(context.Background(), 240)
				if before != 120 {
					return fmt.Errorf("before: %d: %w", before, err)
				}
				return err
			},
			"semaphore/force_release": func(o operators, p *semaphore.Permit) error {
				units, err := o.linked.Semaphore("render", 120).ForceRelease(context.Background(), p.ID())
				if units != 120 {
					return fmt.Errorf("units: %d: %w", units, err)
				}
				return err
			},
		} {
			t.Run(script+" "+refusal, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					o := operatorsIn(t)
					done, stop := context.WithCancel(context.Background())
					held := stage.MustAcquire(t, o.linked.Semaphore("render", 120), 120)
					unitWaiters(t, o.worker.Semaphore("render", 120), 120, done)
					action := redistest.Refuse(refusal)
					if refusal == "lost" {
						action = redistest.SilenceBoth()
					}
					fault := o.link.Inject(redistest.Rule{Match: stage.Runs(script), Skip: 1, Action: action})
					began := time.Now()
					require.NoError(t, call(o, held))
					require.Zero(t, time.Since(began), "it waits for no other command")
					time.Sleep(time.Millisecond)
					require.Positive(t, fault.Bites())
					fault.Disarm()
					time.Sleep(time.Minute)
					holders := len(inUse(t, o.worker.Semaphore("render", 120)).Holders)
					require.GreaterOrEqual(t, holders, 120, "all are served")
					stop()
					_ = held.Release(context.Background())
					time.Sleep(time.Minute)
					onlyLimitOf(t, o.server.Client(), "render")
				})
			})
		}
	}
}

// The permit was taken away. The first command of its Release reports that, and the reply to the
// second one is lost.
func TestALostReplyToAFurtherCommandHidesNoLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := operatorsIn(t)
		done, stop := context.WithCancel(context.Background())
		one := stage.MustAcquire(t, o.linked.Semaphore("render", 121), 1)
		rest := stage.MustAcquire(t, o.worker.Semaphore("render", 121), 120)
		unitWaiters(t, o.worker.Semaphore("render", 121), 120, done)
		permits := key.ForSemaphore("render").Permits
		for bit := 1; bit <= 64; bit *= 2 {
			for _, p := range []*semaphore.Permit{one, rest} {
				require.NoError(t, o.server.Client().ZRem(t.Context(), permits, fmt.Sprintf("%s#%d", p.ID(), bit)).Err())
			}
		}
		fault := o.link.Inject(redistest.Rule{Match: stage.Runs("semaphore/release"), Skip: 1, Times: 1, Action: redistest.CutReply()})
		require.ErrorIs(t, one.Release(t.Context()), redlatch.ErrLost)
		time.Sleep(time.Minute)
		require.Equal(t, 1, fault.Bites())
		stop()
		require.ErrorIs(t, rest.Release(context.Background()), redlatch.ErrLost)
		time.Sleep(time.Minute)
	})
}

// A waiter gives up during an outage that is longer than its lease, and shorter than its heartbeat.
func TestAPlaceIsReleasedForAsLongAsItExists(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]redlatch.Option{
		"default heartbeat": {redlatch.WithLease(time.Second)},
		"long heartbeat":    {redlatch.WithLease(time.Second), redlatch.WithHeartbeat(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				link := v.Another()
				a, b := stage.LocksOn(t, v.Client(), options...), stage.LocksOn(t, link.Client(), options...)
				held := stage.MustAcquire(t, a.Semaphore("render", 2), 1)
				ctx, cancel := context.WithCancel(t.Context())
				_, failed := stage.AcquireInBackground(ctx, b.Semaphore("render", 2), 2)
				synctest.Wait()
				link.Down()
				cancel()
				require.ErrorIs(t, <-failed, context.Canceled)
				time.Sleep(2500 * time.Millisecond)
				link.Up()
				time.Sleep(time.Second)
				_, length, err := a.Semaphore("render", 2).Queue(t.Context(), 0, 1)
				require.NoError(t, err)
				require.Zero(t, length)
				p, err := a.Semaphore("render", 2).TryAcquire(t.Context(), 1)
				require.NoError(t, err)
				require.NoError(t, p.Release(t.Context()))
				require.NoError(t, held.Release(t.Context()))
			})
		})
	}
}

// Only crashed waiters are ahead of a TryAcquire, and more than one command drops.
func TestATryPassesManyExpiredWaiters(t *testing.T) {
	t.Parallel()
	k, l := key.ForSemaphore("door"), key.ForMutex("door")
	for name, c := range map[string]struct {
		queue, alive string
		try          func(*redlatch.Client) (release func(context.Context) error, err error)
	}{
		"semaphore": {k.Queue, k.Alive, func(c *redlatch.Client) (func(context.Context) error, error) {
			p, err := c.Semaphore("door", 5).TryAcquire(context.Background(), 1)
			return p.Release, err
		}},
		"fair mutex": {l.Queue, l.Alive, func(c *redlatch.Client) (func(context.Context) error, error) {
			h, err := c.FairMutex("door").TryLock(context.Background())
			return h.Unlock, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				died := time.Now().Add(-time.Second)
				var queued, beats []redis.Z
				for i := range 1200 {
					member := fmt.Sprintf("22222222-2222-2222-2222-222222222222:%d 1 5000 30000 dead", i)
					queued = append(queued, redis.Z{Score: float64(died.UnixMicro() + int64(i)), Member: member})
					beats = append(beats, redis.Z{Score: float64(died.UnixMilli()), Member: member})
				}
				beats = append(beats, redis.Z{Score: float64(died.UnixMilli()), Member: "grace"}) // the grace is over
				require.NoError(t, v.Client().ZAdd(t.Context(), c.queue, queued...).Err())
				require.NoError(t, v.Client().ZAdd(t.Context(), c.alive, beats...).Err())
				release, err := c.try(stage.LocksOn(t, v.Client()))
				require.NoError(t, err)
				require.NoError(t, release(t.Context()))
			})
		})
	}
}

// Three hundred permits have three units each. The result does not show all entries, but it counts
// all units.
func TestInspectShowsAllUnitsOfAPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := stage.LocksOn(t, redistest.Bubble(t).Client()).Semaphore("render", 1000)
		for range 300 {
			stage.MustAcquire(t, s, 3)
		}
		info := inUse(t, s)
		require.Equal(t, 900, info.InUse)
		require.NotEmpty(t, info.Holders)
		for _, h := range info.Holders {
			require.Equal(t, 3, h.Units)
		}
	})
}
