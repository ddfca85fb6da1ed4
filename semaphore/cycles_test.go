package semaphore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/semaphore"
)

// Workers acquire and release units a thousand times, or fail to. Replies and requests are lost,
// and commands run twice. Waits are cancelled, clients crash, and the limit goes up and down.
// Holders never trust more units than a limit of the last while allowed. At the end all units are
// there again: 0 leaked, 0 minted.
func TestAThousandCyclesLeakAndMintNoPermit(t *testing.T) {
	t.Parallel()
	for seed := range uint64(redistest.Rounds(1, 4)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newMill(t, seed).run() })
		})
	}
}

const (
	millLease = 6 * time.Second
	millLimit = 5
	cycles    = 1000
)

// mill has many workers on one semaphore, with their permits.
type mill struct {
	t      *testing.T
	server *redistest.Virtual

	mu      sync.Mutex
	rng     *rand.Rand
	sems    []*semaphore.Semaphore
	wires   []*redis.Client
	held    map[*semaphore.Permit]struct{}
	limits  map[time.Time]int // limits, by the time at which they ended; zero: now
	cycles  int
	granted int
	lost    int
}

func newMill(t *testing.T, seed uint64) *mill {
	m := &mill{
		t: t, server: redistest.Bubble(t), rng: rand.New(rand.NewPCG(seed, 7)),
		held: map[*semaphore.Permit]struct{}{}, limits: map[time.Time]int{{}: millLimit},
	}
	for range 4 {
		m.sems, m.wires = append(m.sems, nil), append(m.wires, nil)
		m.renew(len(m.sems) - 1)
	}
	return m
}

// renew starts a process in place of one that has crashed.
func (m *mill) renew(i int) {
	wire := m.server.Client()
	sem := stage.LocksOn(m.t, wire, redlatch.WithLease(millLease), redlatch.WithHeartbeat(millLease/2)).Semaphore("mill", millLimit)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sems[i], m.wires[i] = sem, wire
}

func (m *mill) draw(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

func (m *mill) run() {
	script := redistest.Command("evalsha", "eval")
	faults := []*redistest.Fault{}
	var workers sync.WaitGroup
	for range 12 {
		workers.Go(func() {
			for m.next() {
				m.cycle()
			}
		})
	}
	stop := make(chan struct{})
	var troubles sync.WaitGroup
	troubles.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(m.draw(2000)) * time.Millisecond):
			}
			switch i := m.draw(len(m.wires)); m.draw(8) {
			case 0:
				faults = append(faults, m.server.Inject(redistest.Rule{Match: script, Times: 1 + m.draw(3), Action: redistest.CutReply()}))
			case 1:
				faults = append(faults, m.server.Inject(redistest.Rule{Match: script, Times: 1, Action: redistest.CutRequest()}))
			case 2, 3:
				faults = append(faults, m.server.Inject(redistest.Rule{Match: script, Times: 1 + m.draw(3), Action: redistest.Duplicate()}))
			case 4:
				faults = append(faults, m.server.Inject(redistest.Rule{Match: script, Times: 2, Action: redistest.DelayReply(time.Duration(m.draw(3000)) * time.Millisecond)}))
			case 5, 6:
				m.resize()
			default:
				_ = m.wires[i].Close() // like a kill: the process releases nothing
				m.renew(i)
			}
		}
	})
	workers.Wait()
	close(stop)
	troubles.Wait()
	bites := 0
	for _, f := range faults {
		f.Disarm()
		bites += f.Bites()
	}
	m.settled(bites)
}

// next counts a cycle.
func (m *mill) next() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cycles++
	return m.cycles <= cycles
}

func (m *mill) cycle() {
	m.mu.Lock()
	sem := m.sems[m.rng.IntN(len(m.sems))]
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+m.draw(8000))*time.Millisecond)
	defer cancel()
	take := sem.Acquire
	if m.draw(4) == 0 {
		take = sem.TryAcquire
	}
	p, err := take(ctx, 1+m.draw(3))
	if err != nil {
		var limits *redlatch.LimitError
		known := errors.As(err, &limits)
		for _, kind := range []error{redlatch.ErrNotAcquired, redlatch.ErrUnavailable, redlatch.ErrIndeterminate, redlatch.ErrClosed, context.DeadlineExceeded} {
			known = known || errors.Is(err, kind)
		}
		assert.True(m.t, known, "%v", err)
		return
	}
	m.took(p)
	select {
	case <-time.After(time.Duration(m.draw(3000)) * time.Millisecond):
	case <-p.Lost():
	}
	err = p.Release(context.Background())
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, p)
	if errors.Is(err, redlatch.ErrLost) {
		m.lost++
	}
}

// took checks that the holders that trust their permits have no more units than allowed.
func (m *mill) took(p *semaphore.Permit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.granted++
	m.held[p] = struct{}{}
	trusted, allowed := 0, 0
	for held := range m.held {
		if held.Trusted() {
			trusted += held.Units()
		}
	}
	for ended, limit := range m.limits {
		if ended.IsZero() || time.Since(ended) < 3*millLease {
			allowed = max(allowed, limit)
		}
	}
	assert.LessOrEqual(m.t, trusted, allowed, "more than the limit")
}

func (m *mill) resize() {
	limit := 3 + m.draw(5)
	m.mu.Lock()
	m.limits[time.Now()] = m.limits[time.Time{}]
	m.limits[time.Time{}] = max(limit, m.limits[time.Time{}])
	sem := m.sems[0]
	m.mu.Unlock()
	if _, err := sem.Resize(context.Background(), limit); err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.limits[time.Now()] = m.limits[time.Time{}]
		m.limits[time.Time{}] = limit
	}
}

// settled asserts that all units are back, and no others.
func (m *mill) settled(bites int) {
	time.Sleep(3 * millLease)
	sem := stage.LocksOn(m.t, m.server.Client()).Semaphore("mill", millLimit)
	_, err := sem.Resize(context.Background(), millLimit)
	require.NoError(m.t, err)
	// If nobody has asked for a while, Redis takes crashed waiters for live once more. It grants
	// units to them while there are free units; see lua/include/grace.lua. After that heartbeat,
	// and before the next grace, the next command drops the rest.
	time.Sleep(millLease * 2 / 3)
	_, err = sem.Resize(context.Background(), millLimit)
	require.NoError(m.t, err)
	info := inUse(m.t, sem)
	require.Zero(m.t, info.InUse, "leaked: %+v", info)
	require.Zero(m.t, info.Waiting)
	all := stage.MustAcquire(m.t, sem, millLimit)
	_, err = sem.TryAcquire(context.Background(), 1)
	require.ErrorIs(m.t, err, redlatch.ErrNotAcquired, "minted")
	require.NoError(m.t, all.Release(context.Background()))
	onlyLimitOf(m.t, m.server.Client(), "mill")
	require.Greater(m.t, m.granted, cycles/10)
	require.Greater(m.t, bites, 50)
	time.Sleep(20 * time.Second) // go-redis goes on dialling in the background
	m.t.Logf("%d cycles: %d granted, %d lost, %d faults bit", cycles, m.granted, m.lost, bites)
}

func init() { stage.Workers["permits"] = permitsWorker }

// permitsWorker acquires units, reports that, and keeps them until it is killed.
func permitsWorker() error {
	opt, err := redis.ParseURL(os.Getenv("REDLATCH_TEST_URL"))
	if err != nil {
		return err
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	locks, err := redlatch.New(rdb, redlatch.WithLease(4*time.Second), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	p, err := locks.Semaphore(os.Getenv("REDLATCH_TEST_LOCK"), 3).Acquire(context.Background(), 1)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(stage.Report{Acquisition: p.ID(), Trusted: p.Trusted()}); err != nil {
		return err
	}
	<-p.Lost()
	if err := p.Release(context.Background()); !errors.Is(err, redlatch.ErrLost) {
		return fmt.Errorf("released after its lease: %v", err)
	}
	return nil
}

// Processes that are killed keep their units for a lease, and no longer. A process that was stopped
// for longer finds its permit lost, and takes nothing from the next holder.
func TestUnitsOfKilledProcessesComeBack(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	name := redistest.Name(t)
	sem := stage.LocksOn(t, s.Client(t), redlatch.WithLease(4*time.Second)).Semaphore(name, 3)
	var all []*stage.Worker
	var ids []string
	for range 3 {
		w := stage.StartWorker(t, "permits", "REDLATCH_TEST_URL="+s.URL(), "REDLATCH_TEST_LOCK="+name)
		said := w.Hear()
		require.True(t, said.Trusted)
		all, ids = append(all, w), append(ids, said.Acquisition)
	}
	_, err := sem.TryAcquire(t.Context(), 1)
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	fourth, _ := stage.AcquireInBackground(t.Context(), sem, 2)
	all[0].Signal(syscall.SIGKILL)
	all[1].Signal(syscall.SIGKILL)
	got := stage.Within(t, fourth, "two died: there is room for two")
	info := inUse(t, sem)
	require.Equal(t, 3, info.InUse)
	require.NotContains(t, fmt.Sprint(info.Holders), ids[0])
	require.NotContains(t, fmt.Sprint(info.Holders), ids[1])
	require.True(t, got.Trusted())

	all[2].Signal(syscall.SIGSTOP)
	fifth := stage.Within(t, first(stage.AcquireInBackground(t.Context(), sem, 1)), "it was stopped beyond its lease")
	all[2].Signal(syscall.SIGCONT)
	all[2].Ended() // its Release reported the loss
	require.Equal(t, 3, inUse(t, sem).InUse, "and nothing was taken from anybody")
	require.NoError(t, got.Release(t.Context()))
	require.NoError(t, fifth.Release(t.Context()))
	onlyLimitOf(t, s.Client(t), name)
	require.NoError(t, s.Client(t).Del(t.Context(), key.ForSemaphore(name).Permits).Err())
}

func first[A, B any](a A, _ B) A { return a }
