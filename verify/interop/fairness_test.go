package interop_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fair"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/reentrant"
)

// workTime is how long each cycle of these tests holds the lock.
const workTime = 50 * time.Millisecond

// endless is more cycles than any test makes.
const endless = "1000000000"

// javaLoop is threads of Java that lock, hold and unlock, and lock again immediately.
type javaLoop struct {
	services []*redisson
	threads  []*thread
	answers  []<-chan reply
}

func (l *javaLoop) start(service *redisson, threads int, name, cycles string) {
	l.services = append(l.services, service)
	for range threads {
		a := service.thread("loops" + strconv.Itoa(len(l.threads)))
		l.threads = append(l.threads, a)
		l.answers = append(l.answers, a.begin("cycles", "lock", name, millis(workTime), cycles))
	}
}

// stop ends the loops after the cycles that have begun.
func (l *javaLoop) stop() {
	for _, service := range l.services {
		service.thread("stops").must("stop")
	}
}

// cycles waits for the end of the loops, and returns how many cycles each thread made.
func (l *javaLoop) cycles(t testing.TB) (each []int) {
	t.Helper()
	for i, answer := range l.answers {
		r := l.threads[i].await(answer, "ends its cycles")
		require.Empty(t, r.err)
		n, err := strconv.Atoi(r.value)
		require.NoError(t, err)
		each = append(each, n)
	}
	return each
}

// longest returns the longest wait of any thread.
func (l *javaLoop) longest() (longest time.Duration) {
	for _, service := range l.services {
		longest = max(longest, time.Duration(service.thread("asks").number("longest"))*time.Millisecond)
	}
	return longest
}

// goLoop is goroutines of this library that do the same as a javaLoop until stop.
type goLoop struct {
	mu     sync.Mutex
	each   []int
	change chan struct{} // closed and replaced after each cycle
	ends   context.CancelFunc
	done   sync.WaitGroup
	err    error

	longest time.Duration // any worker has waited for the lock
}

// doer is a mutex of either kind.
type doer interface {
	Do(ctx context.Context, fn func(context.Context) error) error
}

// startGoLoop starts one worker for each mutex.
func startGoLoop[M doer](t testing.TB, each ...M) *goLoop { return startPausingLoop(t, 0, each...) }

// startPausingLoop is startGoLoop, with a pause after each cycle.
func startPausingLoop[M doer](t testing.TB, pause time.Duration, each ...M) *goLoop {
	ctx, cancel := context.WithCancel(context.Background())
	l := &goLoop{each: make([]int, len(each)), change: make(chan struct{}), ends: cancel}
	t.Cleanup(l.stop)
	for i, m := range each {
		l.done.Go(func() {
			for ctx.Err() == nil {
				begun := time.Now()
				var waited time.Duration
				err := m.Do(ctx, func(context.Context) error {
					waited = time.Since(begun)
					time.Sleep(workTime) // the work
					return nil
				})
				l.note(i, err, ctx.Err() != nil, waited)
				time.Sleep(pause)
			}
		})
	}
	return l
}

func (l *goLoop) note(worker int, err error, stopped bool, waited time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.longest = max(l.longest, waited)
	if err != nil && !stopped {
		l.err = err
		l.ends()
	}
	if err == nil {
		l.each[worker]++
	}
	close(l.change)
	l.change = make(chan struct{})
}

func (l *goLoop) stop() {
	l.ends()
	l.done.Wait()
}

// cycles returns how many cycles each worker has made.
func (l *goLoop) cycles() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]int(nil), l.each...)
}

// awaitMore waits until each worker has made n more cycles than before.
func (l *goLoop) awaitMore(t testing.TB, before []int, n int) {
	t.Helper()
	for {
		l.mu.Lock()
		change, err, enough := l.change, l.err, true
		for i := range l.each {
			enough = enough && l.each[i] >= before[i]+n
		}
		l.mu.Unlock()
		require.NoError(t, err)
		if enough {
			return
		}
		within(t, change, "each Go worker gets turns: "+strconv.Itoa(n))
	}
}

func sumOf(each []int) (sum int) {
	for _, n := range each {
		sum += n
	}
	return sum
}

// Four workers of Go and four of Java, in two clients, ask for the same lock all the time and hold
// it for 50 ms. First each Java thread makes its cycles although Go never stops. Then each Go
// worker does, although Java never stops. That holds for goroutines of one client, and for clients
// of their own.
//
// Beside one client, Java gets a third of the cycles or more, because the client yields. Without
// that it has about a tenth, on average. Something else may keep the Java process from its
// processor for a moment, so it has four rounds to get there, all together.
func TestBothLanguagesGetTurnsUnderLongHolds(t *testing.T) {
	t.Parallel()
	r := java(t)
	const workers = 4
	for clients, enough := range map[int]int{1: 6, workers: 1} {
		t.Run(fmt.Sprintf("Go in %d clients", clients), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			name := redistest.Name(t)
			var each []*reentrant.Mutex
			for range clients {
				m := locksOn(t, server.Client(t)).Mutex(name)
				each = append(each, slices.Repeat([]*reentrant.Mutex{m}, workers/clients)...)
			}
			services := []*redisson{r.open(t, server.Addr()), r.open(t, server.Addr())}

			loop := startGoLoop(t, each...)
			loop.awaitMore(t, make([]int, workers), 1) // Go has the lock before Java asks for it
			rounds, ofJava, ofGo := 0, 0, 0
			for fair := false; !fair; fair = clients > 1 || 2*ofJava >= ofGo {
				rounds++
				require.LessOrEqual(t, rounds, 4, "Java gets too little: %d, and Go %d", ofJava, ofGo)
				before := loop.cycles()
				var some javaLoop
				for _, service := range services {
					some.start(service, workers/len(services), name, strconv.Itoa(enough))
				}
				ofJava += sumOf(some.cycles(t))
				ofGo += sumOf(loop.cycles()) - sumOf(before)
				t.Logf("while Java made %d cycles, Go made %d", ofJava, ofGo)
				require.Equal(t, rounds*workers*enough, ofJava)
			}

			var all javaLoop
			for _, service := range services {
				all.start(service, workers/len(services), name, endless)
			}
			before := loop.cycles()
			loop.awaitMore(t, before, enough)
			ofGo = sumOf(loop.cycles()) - sumOf(before)
			all.stop()
			loop.stop()
			t.Logf("while Go made %d cycles, Java made at most %d", ofGo, sumOf(all.cycles(t)))
		})
	}
}

// fairWaits starts a Lock of a fair mutex, and returns when it stands in the queue.
func fairWaits(t testing.TB, m *fair.Mutex, length int) <-chan grant {
	t.Helper()
	got := fairGot(t, m)
	require.Eventually(t, func() bool { return queued(t, m) == length }, guard, time.Millisecond, "it queues")
	return got
}

// queued counts the waiters in the queue of a fair mutex.
func queued(t testing.TB, m *fair.Mutex) (n int) {
	t.Helper()
	_, n, err := m.Queue(t.Context(), 0, 0)
	require.NoError(t, err)
	return n
}

// Two Java threads lock in a loop, and hold the lock for 50 ms. A worker of Go that asks for a
// FairMutex of that name all the time gets turns, with the default heartbeat. Each release of Java
// notifies it. So do several workers, and Java has its turns too while there is one.
func TestAFairWorkerGetsTurnsBesideLoopingJavaThreads(t *testing.T) {
	t.Parallel()
	const enough = 20 // turns of each worker; without the messages, one takes half a minute or more
	r := java(t)
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			name := redistest.Name(t)
			var java javaLoop
			java.start(r.open(t, server.Addr()), 2, name, endless)
			m := locksOn(t, server.Client(t)).FairMutex(name)
			begun := time.Now()
			loop := startPausingLoop(t, 2*workTime, slices.Repeat([]*fair.Mutex{m}, workers)...)
			loop.awaitMore(t, make([]int, workers), enough)
			took := time.Since(begun)
			java.stop()
			loop.stop()
			each := java.cycles(t)
			t.Logf("in %v, Go made %v cycles and Java %v; the longest wait of Go was %v", took, loop.cycles(), each, loop.longest)
			if workers == 1 {
				require.Positive(t, sumOf(each))
			}
		})
	}
}

// Two Java threads lock in a loop. Four clients of Go wait in the queue of a FairMutex. All of them
// have their turn, and Java excludes none of them.
func TestFairWaitersGetInBetweenLoopingJavaThreads(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Start(t)
	service := r.open(t, server.Addr())
	name, tries := redistest.Name(t), service.thread("tries")
	var clients []*fair.Mutex
	for range 4 {
		clients = append(clients, locksOn(t, server.Client(t)).FairMutex(name))
	}
	var loop javaLoop
	loop.start(service, 2, name, endless)
	const rounds = 2
	for range rounds {
		require.Eventually(t, func() bool {
			info, err := clients[0].Inspect(t.Context())
			return err == nil && info.Held()
		}, guard, time.Millisecond, "Java has the lock")
		turns := make(chan grant, len(clients))
		for _, m := range clients {
			got := fairGot(t, m)
			go func() { turns <- <-got }()
		}
		for range clients {
			h := granted(t, turns).hold
			require.False(t, tries.tries(name), "both have it")
			unlock(t, h)
		}
	}
	loop.stop()
	each := loop.cycles(t)
	t.Logf("Go had %d turns, the two Java threads %v", rounds*len(clients), each)
	require.Positive(t, sumOf(each))
}

// fairGot starts a Lock of a fair mutex.
func fairGot(t testing.TB, m *fair.Mutex) <-chan grant {
	got := make(chan grant, 1)
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	t.Cleanup(cancel)
	go func() {
		h, err := m.Lock(ctx)
		got <- grant{h, err, time.Now()}
	}()
	return got
}

// If Java frees the lock and no Java thread takes it, the first waiter of the queue gets it. From
// then on each release of Go gives the lock to the next one in the queue, and a Java thread that
// waits gets it when the queue is empty.
func TestFairQueueGoesBeforeWaitingJavaThreads(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Start(t)
	service := r.open(t, server.Addr())
	holder, next := service.thread("holds"), service.thread("waits")
	locks := locksOn(t, server.Client(t), redlatch.WithHeartbeat(time.Second), redlatch.WithLease(never))
	m := locks.FairMutex(redistest.Name(t))
	holder.lock(m.Name())
	var queue []<-chan grant
	for i := range 3 {
		queue = append(queue, fairWaits(t, m, i+1))
	}
	holder.unlock(m.Name())
	h := granted(t, queue[0]).hold

	got := next.begin("lock", "lock", m.Name(), millis(never))
	require.Eventually(t, func() bool { return listeners(t, server.Control(), m.Name()) == 2 }, guard, time.Millisecond, "Java waits too")
	for _, waiter := range queue[1:] {
		unlock(t, h)
		h = granted(t, waiter).hold
		require.Empty(t, got, "Java gets ahead of the queue")
	}
	unlock(t, h)
	require.Empty(t, next.await(got, "gets the lock").err)
	info, err := m.Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, next.must("me"), info.Holder)
	require.Zero(t, queued(t, m))
	next.unlock(m.Name())
}

// A Java thread takes a free lock, although Go waiters stand in the queue of its FairMutex. The
// spin lock of Java notifies nobody, so the Java thread is certainly faster.
func TestJavaGetsAheadOfAFairQueue(t *testing.T) {
	t.Parallel()
	r := java(t)
	server := redistest.Start(t)
	service := r.open(t, server.Addr())
	holder, other := service.thread("holds"), service.thread("other")
	rare := []redlatch.Option{redlatch.WithHeartbeat(never), redlatch.WithLease(never)} // no heartbeat comes meanwhile
	m := locksOn(t, server.Client(t), rare...).FairMutex(redistest.Name(t))
	holder.must("lock", "spin", m.Name(), millis(never))
	_, err := m.TryLock(t.Context()) // Go knows the server's clock now
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	before := scripts(t, server)
	got := fairGot(t, m)
	asleep(t, before, func() bool { return len(server.Control().PubSubChannels(t.Context(), "redlatch:client:*").Val()) == 1 }, server)
	holder.must("unlock", "spin", m.Name())
	require.True(t, other.tries(m.Name()), "Java does not look at the queue")
	require.Empty(t, got)
	_, err = m.ForceRelease(t.Context(), other.must("me"))
	require.NoError(t, err)
	unlock(t, granted(t, got).hold) // a release of Go serves the queue
}
