package fair_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

func init() { stage.Workers["queuers"] = queuersWorker }

// queuersWorker makes the requested number of goroutines wait for a fair mutex. All of them start
// when it reads a line. Some give up, and some re-enter. It writes a line when each has its place
// or has ended, and another one with the turns.
func queuersWorker() error {
	opt, err := redis.ParseURL(os.Getenv("REDLATCH_TEST_URL"))
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(os.Getenv("REDLATCH_TEST_WAITERS"))
	if err != nil {
		return err
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	locks, err := redlatch.New(rdb, redlatch.WithLogger(slog.New(slog.DiscardHandler)), redlatch.WithHeartbeat(crowdBeats))
	if err != nil {
		return err
	}
	say := json.NewEncoder(os.Stdout)
	hear := bufio.NewReader(os.Stdin)
	if err := say.Encode(stage.Report{Trusted: true}); err != nil {
		return err
	}
	if _, err := hear.ReadString('\n'); err != nil {
		return err
	}
	turns, failed := make([]stage.Turn, n), make([]error, n)
	var all, settled sync.WaitGroup
	settled.Add(n)
	for i := range n {
		settle := sync.OnceFunc(settled.Done)
		all.Go(func() {
			defer settle()
			turns[i], failed[i] = takeATurn(locks, os.Getenv("REDLATCH_TEST_LOCK"), i, settle)
		})
	}
	settled.Wait()
	if err := say.Encode(stage.Report{Trusted: true}); err != nil {
		return err
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if err := say.Encode(stage.Report{Turns: turns}); err != nil {
		return err
	}
	return locks.Close(context.Background())
}

// crowdBeats is the heartbeat of hundreds of waiters in a process. On a busy machine all of them
// may be late by a second, and Redis must not drop any of them as expired.
const crowdBeats = 5 * time.Second

// givesUp says whether a waiter gives up, or has the lock by then.
func givesUp(i int) bool { return i%5 == 0 }

// takeATurn calls standing when the waiter has its place and will keep it until it has the lock.
func takeATurn(locks *redlatch.Client, name string, i int, standing func()) (t stage.Turn, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	time.Sleep(rand.N(500 * time.Millisecond))
	if givesUp(i) {
		time.AfterFunc(rand.N(time.Second), cancel)
	}
	m := locks.FairMutex(name, redlatch.WithWaitCallback(func(lock.Waiting) {
		if t.Stood == 0 {
			t.Stood = time.Now().UnixNano()
		}
		if !givesUp(i) {
			standing()
		}
	}))
	t.Asked = time.Now().UnixNano()
	h, err := m.Lock(ctx)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return t, err
	}
	t.Fence = h.Fence()
	if i%3 == 0 {
		inner, err := m.Lock(h.Context())
		if err != nil {
			return t, err
		}
		if inner.Fence() != t.Fence {
			return t, errors.New("entered again with another fence")
		}
		if err := inner.Unlock(context.Background()); err != nil {
			return t, err
		}
	}
	return t, h.Unlock(context.Background())
}

// Four processes have fifty waiters each. Some of them give up, and some re-enter. A waiter that
// had its place before another asked gets the lock before it.
func TestFairOrderAcrossProcesses(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), redistest.Name(t)
	var all []*stage.Worker
	for range 4 {
		w := stage.StartWorker(t, "queuers", "REDLATCH_TEST_URL="+s.URL(), "REDLATCH_TEST_LOCK="+name, "REDLATCH_TEST_WAITERS=50")
		w.Hear()
		all = append(all, w)
	}
	locks := stage.LocksOn(t, s.Client(t))
	first, err := locks.FairMutex(name).Lock(t.Context())
	require.NoError(t, err)
	for _, w := range all {
		w.Say()
	}
	admin := s.Client(t)
	require.Eventually(t, func() bool { return admin.ZCard(t.Context(), key.ForMutex(name).Queue).Val() > 100 }, stage.Guard, time.Millisecond)
	require.NoError(t, first.Unlock(t.Context()))

	var turns []stage.Turn
	gaveUp, waited := 0, 0
	for _, w := range all {
		w.Hear() // all have their places, or had their turns
		for _, turn := range w.Hear().Turns {
			switch {
			case turn.Fence == 0:
				gaveUp++
				continue
			case turn.Stood != 0:
				waited++
			}
			turns = append(turns, turn)
		}
		w.Ended()
	}
	require.Len(t, turns, 200-gaveUp)
	require.Greater(t, waited, 100, "there was a queue")
	slices.SortFunc(turns, func(a, b stage.Turn) int { return int(a.Fence - b.Fence) })
	for i, a := range turns {
		for _, later := range turns[i+1:] {
			require.False(t, later.Stood != 0 && later.Stood < a.Asked, "inversion: %+v got it before %+v", a, later)
		}
	}
	nothingOf(t, admin, name)
}

// nothingOf waits until only the fence of a lock remains.
func nothingOf(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		n, err := rdb.Exists(t.Context(), name, key.ForMutex(name).Queue, key.ForMutex(name).Alive).Result()
		return err == nil && n == 0
	}, stage.Guard, 5*time.Millisecond)
}

// Five hundred waiters of two processes are killed with -9, and so is the holder. The live waiter
// behind all of them gets the lock.
func TestKilledWaitersAreDroppedTogether(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), redistest.Name(t)
	admin := s.Client(t)
	locks := stage.LocksOn(t, s.Client(t), redlatch.WithHeartbeat(crowdBeats))
	h, err := locks.FairMutex(name).Lock(t.Context())
	require.NoError(t, err)
	var victims []*stage.Worker
	for range 2 {
		w := stage.StartWorker(t, "queuers", "REDLATCH_TEST_URL="+s.URL(), "REDLATCH_TEST_LOCK="+name, "REDLATCH_TEST_WAITERS=350")
		w.Hear()
		w.Say()
		w.Hear() // all have their places, or gave up
		victims = append(victims, w)
	}
	const behind = 2 * 350 * 4 / 5
	standing := func() int64 { return admin.ZCard(t.Context(), key.ForMutex(name).Queue).Val() }
	require.Eventually(t, func() bool { return standing() == behind }, stage.Guard, time.Millisecond, "those who give up have gone")
	type result struct {
		hold *lock.Hold
		err  error
		at   time.Time
	}
	got := make(chan result, 1)
	go func() {
		next, err := locks.FairMutex(name).Lock(t.Context())
		got <- result{next, err, time.Now()}
	}()
	require.Eventually(t, func() bool { return standing() == behind+1 }, stage.Guard, time.Millisecond)
	for _, w := range victims {
		w.Signal(syscall.SIGKILL)
	}
	killed := time.Now()
	require.NoError(t, h.Unlock(t.Context()))
	next := stage.Within(t, got, "the one that lives gets the lock")
	require.NoError(t, next.err)
	t.Logf("%d dead, a heartbeat of %v: granted %v after the kill", behind, crowdBeats, next.at.Sub(killed).Round(time.Millisecond))
	require.NoError(t, next.hold.Unlock(t.Context()))
	nothingOf(t, admin, name)
}

// The server is stopped for several heartbeats, and goes on. The order stays.
func TestAStoppedServerKeepsTheQueue(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	keepsTheQueue(t, s, func() {
		s.Pause()
		time.Sleep(3 * beats) // the fault
		s.Resume()
	})
}

// The server is killed and started again, with all data that it had written.
func TestARestartedServerKeepsTheQueue(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	keepsTheQueue(t, s, func() {
		s.Kill()
		time.Sleep(3 * beats)
		s.Relaunch()
	})
}

// beats is the heartbeat of waiters that keep their place. The machine may have no time for them
// for a second.
const beats = 2 * time.Second

func keepsTheQueue(t *testing.T, s *redistest.Server, fault func()) {
	t.Helper()
	const waiters = 12
	admin := s.Client(t)
	options := []redlatch.Option{redlatch.WithHeartbeat(beats), redlatch.WithLease(time.Minute)}
	clients := []*redlatch.Client{stage.LocksOn(t, s.Client(t), options...), stage.LocksOn(t, s.Client(t), options...), stage.LocksOn(t, s.Client(t), options...)}
	h, err := clients[0].FairMutex("door").Lock(t.Context())
	require.NoError(t, err)
	order := make(chan int, waiters)
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			h, err := clients[i%3].FairMutex("door").Lock(t.Context())
			if err == nil {
				order <- i
				err = h.Unlock(t.Context())
			}
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		})
		require.Eventually(t, func() bool { return admin.ZCard(t.Context(), "redlatch:queue:{door}").Val() == int64(i+1) }, stage.Guard, time.Millisecond)
	}
	fault()
	// All are back: they have sent heartbeats, and Redis dropped nobody.
	require.Eventually(t, func() bool {
		now, err := admin.Time(t.Context()).Result()
		if err != nil {
			return false
		}
		living := admin.ZCount(t.Context(), "redlatch:alive:{door}", strconv.FormatInt(now.UnixMilli(), 10), "+inf").Val()
		return living >= waiters && admin.ZCard(t.Context(), "redlatch:queue:{door}").Val() == waiters
	}, stage.Guard, time.Millisecond)
	require.NoError(t, h.Unlock(t.Context()))
	all.Wait()
	close(order)
	var got []int
	for i := range order {
		got = append(got, i)
	}
	require.True(t, slices.IsSorted(got), "%v", got)
	require.Len(t, got, waiters)
	nothingOf(t, admin, "door")
}
