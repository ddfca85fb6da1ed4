package reentrant

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

// Mutex is a reentrant lock on one name. It is a cheap value without state of
// its own: make it where it is needed, and share it or not. Its methods may be
// called concurrently. Methods of a nil Mutex, or of one that no client made, return a
// *lockerr.ConfigError.
type Mutex struct {
	family *Family
	named  mutex.Named
}

// Mutex returns the mutex of a name. What is wrong with the name or the
// settings is told by every use of it.
func (f *Family) Mutex(name string, st settings.Lock) *Mutex {
	return &Mutex{family: f, named: f.book.Lock(name, st)}
}

// Name is the name of the lock, with the client's prefix.
func (m *Mutex) Name() string { return m.orUnmade().Keys.Lock }

// orUnmade is the lock by its name; for a nil mutex, a lock that no client made.
func (m *Mutex) orUnmade() *mutex.Named {
	if m == nil {
		return new(mutex.Named)
	}
	return &m.named
}

// Lock waits until it has the lock, or ctx ends. With the context of a hold of the
// lock, or one derived from it, it re-enters: it adds another hold at once, under the
// lease and the renewal of the first one. With any other context it waits, also for
// locks of the same goroutine. ctx bounds the wait and nothing else.
//
// On success the hold is kept alive until Unlock, and the work is to be done with
// its Context. On failure nothing more is held than before, and a grant that
// arrives late is given back in the background. Errors:
//   - lockerr.ErrNotAcquired, a *lockerr.NotAcquiredError, when ctx ended while
//     somebody else had the lock; errors.Is finds the end of ctx too.
//   - lockerr.ErrUnavailable or ErrIndeterminate when ctx ended while Redis did
//     not answer. Without such an end Lock waits for Redis as it does for the
//     lock: for ever.
//   - the error of ctx, and none of the others, when it had ended before.
//   - lockerr.ErrLost when the hold of ctx was lost. The lock is not
//     acquired anew before the lost holds are unlocked: the work under them
//     would not know.
//   - lockerr.ErrRefused at once when Redis will not do it, ErrClosed,
//     ErrConfig.
//
// A free lock costs one round trip, as does each re-entry; one more when the
// server does not know the script yet, and one more for the first lock of a client, which
// learns the server's clock. Waiting goroutines
// of one client are served in order, and only one of them asks Redis: when it
// is told of a release, and at least once each poll bound.
func (m *Mutex) Lock(ctx context.Context) (*lock.Hold, error) {
	shared, err := m.orUnmade().Want(ctx)
	if err != nil {
		return nil, err
	}
	w := m.want(shared)
	defer w.end()
	suspect := w.Suspect()
	defer suspect.Stop()
	for {
		if h, has, err := w.Reenter(ctx); has {
			return w.Handle(ctx, h, err)
		}
		wait, turn := w.l.join(w)
		if wait != nil {
			g, err := w.await(ctx, wait, suspect)
			switch {
			case errors.Is(err, mutex.ErrOwnChain):
				continue
			case err == nil && g.hold != nil && !g.hold.Trusted():
				_ = g.hold.Unlock(ctx) // it took too long to get here; anew
				continue
			case err != nil || g.hold != nil:
				return w.Handle(ctx, g.hold, err)
			}
			turn = g.turn
		}
		if turn {
			h, err := w.contend(ctx, suspect)
			if errors.Is(err, mutex.ErrOwnChain) {
				continue
			}
			return w.Handle(ctx, h, err)
		}
	}
}

// TryLock acquires the lock if that needs no waiting. It re-enters like
// [Mutex.Lock]. On failure nothing more is held than before. Errors
// are those of Lock; while somebody else has the lock, a
// *lockerr.NotAcquiredError says who, and for how long.
//
// It costs one round trip, and two more where somebody stands in the queue of the fair
// mutex, which goes first. Goroutines that wait in Lock are not asked: TryLock
// may get ahead of them. When Redis does not answer, TryLock tries on until ctx
// ends, but no longer than a few seconds; and from its first request on no longer than
// the lease, if that is shorter.
func (m *Mutex) TryLock(ctx context.Context) (*lock.Hold, error) {
	shared, err := m.orUnmade().Want(ctx)
	if err != nil {
		return nil, err
	}
	w := m.want(shared)
	defer w.end()
	bounded, cancel := session.Shortly(ctx)
	defer cancel()
	for {
		if h, has, err := w.Reenter(bounded); has {
			return w.Handle(ctx, h, err)
		}
		h, err := w.try(bounded, w.l.tryJoin())
		if errors.Is(err, mutex.ErrOwnChain) {
			continue
		}
		return w.Handle(ctx, h, err)
	}
}

// Do runs fn under the lock: it waits for the lock like [Mutex.Lock], calls fn,
// and unlocks, also when fn panics.
//
// The context that fn gets is a child of ctx. With it, fn and what it calls may lock the
// same name again. Goroutines that fn starts with it may do so all at once; from other
// locks they exclude each other. It ends when the lock is lost, with a
// *lockerr.LostError as its cause; fn decides what to do about that.
//
// Do returns the error of Lock, or that of fn. When the lock was lost while fn
// ran, or could not be released, the error also matches that (lockerr.ErrLost
// for the first). It costs two round trips when the lock is free.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return lock.Do(ctx, m.Lock, fn)
}

// Inspect reads who has the lock, for how long, under which fence. It costs one
// round trip and changes nothing. It is for people and dashboards: what it says
// may be over before it is read. Errors: lockerr.ErrUnavailable, ErrIndeterminate,
// ErrRefused, ErrClosed, ErrConfig.
func (m *Mutex) Inspect(ctx context.Context) (lock.Info, error) { return m.orUnmade().Inspect(ctx) }

// ForceRelease ends the lock whoever has it, for operators. expected is the
// acquisition that Inspect showed, so that the lock is not taken from somebody
// who got it in between; empty means whoever has it when Redis is first asked, and nobody
// who comes after. It returns the acquisition that it ended, empty if there was none:
// nobody had the lock, or that holder released it by itself.
//
// The holder is not asked and works on until its next renewal tells it of the
// loss; until then only the fence protects. When another than the expected
// acquisition has the lock, the error is a *lockerr.NotAcquiredError and nothing
// was changed. When a reply was lost, and the expected acquisition does not have the lock
// afterwards, the error matches lockerr.ErrIndeterminate: it may have been ended, or it
// had ended before. It costs one round trip, and one more to learn whom to expect.
func (m *Mutex) ForceRelease(ctx context.Context, expected string) (holder string, err error) {
	return m.orUnmade().ForceRelease(ctx, expected,
		func(ctx context.Context, rdb lua.Redis, target string) (lua.ForceReleaseReply, error) {
			return lua.ForceRelease(ctx, rdb, lua.ForceReleaseParams{
				LockKey: m.named.Keys.Lock, QueueKey: m.named.Keys.Queue, Channel: m.named.Keys.Channel,
				Expected: target, Cluster: m.family.session.Cluster(),
			})
		})
}

// want counts as a user of the local state until end.
func (m *Mutex) want(shared *mutex.Want) *want {
	return &want{Want: shared, family: m.family, l: m.family.enter(shared.Keys.Lock)}
}
