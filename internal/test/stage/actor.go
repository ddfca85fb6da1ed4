package stage

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/wrapped"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/semaphore"
)

// Actor is a client with connections of its own, like a separate process.
type Actor struct {
	*redlatch.Client
	Stage   *Stage
	Ctx     context.Context // ends with the test, and belongs to no chain
	Redis   *redis.Client
	Net     *Wires
	Log     *Logbook
	Scripts *atomic.Int64 // number of answered scripts
}

// warmUp lets the client learn the server's clock, which costs its first grant another script.
func (a *Actor) warmUp() {
	a.Stage.Helper()
	h, err := a.Mutex("warm-up").Lock(a.Ctx)
	require.NoError(a.Stage, err)
	a.Stage.Unlock(h)
}

// End closes the client of the actor.
func (a *Actor) End() {
	ctx, cancel := context.WithTimeout(context.Background(), Guard)
	defer cancel()
	if a.Net.Dead.Load() {
		cancel() // Close cannot release anything
	}
	_ = a.Close(ctx)
}

// Die ends the process as far as Redis can see.
func (a *Actor) Die() {
	a.Net.Dead.Store(true)
	a.Net.Cut(func(*Wire) bool { return true })
}

// ByWorkers makes the client of the actor anew, on a go-redis client in a wrapper. Workers then
// send all its commands, so that a hook sees each of them, and a caller can leave while a hook
// waits.
func (a *Actor) ByWorkers() {
	a.Stage.Helper()
	a.End()
	var err error
	a.Client, err = redlatch.New(wrapped.Embedding{UniversalClient: a.Redis}, redlatch.WithLease(Faraway), redlatch.WithPollInterval(Faraway), redlatch.WithLogger(slog.New(a.Log)))
	require.NoError(a.Stage, err)
	a.Stage.Cleanup(a.End)
	a.warmUp()
}

// Lock waits for a mutex.
func (a *Actor) Lock(name string) *lock.Hold {
	a.Stage.Helper()
	return a.Begin(a.Ctx, name).Got()
}

// Asking is a Lock in a goroutine of its own.
type Asking struct {
	Actor  *Actor
	before int64
	Done   chan struct{}
	Hold   *lock.Hold
	permit *semaphore.Permit // if it requests one
	Err    error
	At     time.Time // when it returned
}

// Begin calls Lock in a goroutine of its own.
func (a *Actor) Begin(ctx context.Context, name string) *Asking {
	w := &Asking{Actor: a, before: a.Scripts.Load(), Done: make(chan struct{})}
	go func() {
		defer close(w.Done)
		w.Hold, w.Err = a.Mutex(name).Lock(ctx)
		w.At = time.Now()
	}()
	return w
}

// Asked returns when the client has got n answers since the call began. A waiter asks, subscribes,
// asks again, and then sleeps. A wake-up between the answer and the sleep is kept for it.
func (w *Asking) Asked(n int64) *Asking {
	w.Actor.Stage.Helper()
	w.Actor.Stage.Await("the waiter asks", func() bool { return w.Actor.Scripts.Load() >= w.before+n })
	return w
}

// Got waits until Lock returns a hold.
func (w *Asking) Got() *lock.Hold {
	w.Actor.Stage.Helper()
	w.Actor.Stage.Receive(w.Done, "Lock returns")
	require.NoError(w.Actor.Stage, w.Err)
	return w.Hold
}

// Failed waits until Lock returns an error.
func (w *Asking) Failed() error {
	w.Actor.Stage.Helper()
	w.Actor.Stage.Receive(w.Done, "Lock returns")
	require.Error(w.Actor.Stage, w.Err)
	require.Nil(w.Actor.Stage, w.Hold)
	return w.Err
}

// Pending reports whether Lock has not returned yet.
func (w *Asking) Pending() bool {
	select {
	case <-w.Done:
		return false
	default:
		return true
	}
}

// scriptHook counts answered scripts, and can delay them. Echoes do not count: they ask nothing.
type scriptHook struct{ answered *atomic.Int64 }

func (h scriptHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h scriptHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		isEcho := err == nil && ScriptOf(cmd) == "pubsub/echo" // a command whose arguments were read counts as written
		if strings.HasPrefix(cmd.Name(), "eval") && !isEcho && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			h.answered.Add(1)
		}
		return err
	}
}

func (h scriptHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(h, next)
}

// BeginFair is Begin for the fair mutex.
func (a *Actor) BeginFair(ctx context.Context, name string, options ...redlatch.LockOption) *Asking {
	w := &Asking{Actor: a, before: a.Scripts.Load(), Done: make(chan struct{})}
	go func() {
		defer close(w.Done)
		w.Hold, w.Err = a.FairMutex(name, options...).Lock(ctx)
		w.At = time.Now()
	}()
	return w
}

// LockFair waits for a fair mutex.
func (a *Actor) LockFair(name string) *lock.Hold {
	a.Stage.Helper()
	return a.BeginFair(a.Ctx, name).Got()
}

// Sited is a hold, and the place where it was acquired.
type Sited struct {
	*lock.Hold
	Site string
}

// LockHere locks a mutex, and says where.
func (a *Actor) LockHere(name string) Sited {
	a.Stage.Helper()
	_, file, line, _ := runtime.Caller(0)
	hold, err := a.Mutex(name).Lock(a.Ctx) // one line below
	require.NoError(a.Stage, err)
	return Sited{hold, fmt.Sprintf("%s:%d", file, line+1)}
}

// Reconnects gives the actor new connections, so that the current rules apply to their logins.
func (a *Actor) Reconnects() {
	a.Stage.Helper()
	require.NoError(a.Stage, a.Close(a.Ctx))
	rdb := a.Stage.NewClient(a.Net, nil)
	rdb.AddHook(scriptHook{answered: a.Scripts})
	var err error
	a.Client, err = redlatch.New(rdb, redlatch.WithLogger(slog.New(a.Log)))
	require.NoError(a.Stage, err)
}

// Loop locks the plain mutex again and again, in the given number of goroutines, until stop. It
// counts the grants.
func (a *Actor) Loop(name string, goroutines int) (turns *atomic.Int64, stop func()) {
	turns = new(atomic.Int64)
	ctx, cancel := context.WithCancel(a.Ctx)
	done := make(chan struct{}, goroutines)
	for range goroutines {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				h, err := a.Mutex(name).Lock(ctx)
				if err != nil {
					continue // stopped
				}
				turns.Add(1)
				time.Sleep(time.Millisecond)
				if err := h.Unlock(a.Ctx); err != nil {
					a.Stage.Errorf("unlock: %v", err)
				}
			}
		}()
	}
	return turns, func() {
		cancel()
		for range goroutines {
			<-done
		}
	}
}

// BeginPermit is Begin for the one permit of a semaphore.
func (a *Actor) BeginPermit() *Asking {
	w := &Asking{Actor: a, before: a.Scripts.Load(), Done: make(chan struct{})}
	go func() {
		defer close(w.Done)
		w.permit, w.Err = a.Semaphore("door", 1).Acquire(a.Ctx, 1)
		w.At = time.Now()
	}()
	return w
}

// GiveBack releases the lock or the permit.
func (w *Asking) GiveBack() {
	w.Actor.Stage.Helper()
	require.NoError(w.Actor.Stage, w.Err)
	if w.permit != nil {
		require.NoError(w.Actor.Stage, w.permit.Release(context.Background()))
		return
	}
	w.Actor.Stage.Unlock(w.Hold)
}
