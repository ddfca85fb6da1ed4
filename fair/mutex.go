package fair

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

// Mutex is a re-entrant lock on one name that is given in order of arrival. It is
// a cheap value without state of its own: make it where it is needed, and share it
// or not. Its methods may be called concurrently. Methods of a nil Mutex, or of one
// that no client made, return a *lockerr.ConfigError.
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

// Lock waits until it has the lock, or ctx ends: behind all that came before, of
// whatever process. With the context of a hold of the lock, or one derived from it, it
// re-enters: it adds another hold at once, under the lease and the renewal of the first
// one. With any other context it waits, also for locks of the same goroutine. ctx bounds
// the wait and nothing else.
//
// The order is that of arrival at the server. A waiter shows that it lives by
// heartbeats; who shows nothing for one is dropped, and all dead ones together
// delay the others by one heartbeat at most. While the server stands still, for a
// minute or less, nobody is dropped. A waiter that lost its place queues again, with
// its old ticket, and is told so (redlatch.WithWaitNotice).
//
// On success the hold is kept alive until Unlock, and the work is to be done with
// its Context. On failure nothing more is held than before, the place is given up,
// and a grant that arrives late moves on to the next at once. Errors:
//   - lockerr.ErrNotAcquired, a *lockerr.NotAcquiredError, when ctx ended while
//     somebody else had the lock: it says who, since when, and the position;
//     errors.Is finds the end of ctx too. The same with lockerr.ErrRemoved when an
//     operator took the waiter out of the queue.
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
// server does not know the script yet. Who has to wait sends one command more, if
// nobody of the client was waiting before, and then its heartbeats, a hundred
// waiters in one command. The release of the holder grants the lock to the first
// waiter and sends its client a message, upon which the waiter asks Redis: two round
// trips from an Unlock to the next one's work.
func (m *Mutex) Lock(ctx context.Context) (*lock.Hold, error) {
	shared, err := m.orUnmade().Want(ctx)
	if err != nil {
		return nil, err
	}
	defer shared.End()
	w := m.want(shared)
	for {
		if h, has, err := w.Reenter(ctx); has {
			return w.Handle(ctx, h, err)
		}
		h, err := w.contend(ctx)
		if errors.Is(err, mutex.ErrOwnChain) {
			continue
		}
		return w.Handle(ctx, h, err)
	}
}

// TryLock acquires the lock if that needs no waiting: if it is free and nobody
// waits. It never gets ahead of the queue, and has no place in it. It
// re-enters like [Mutex.Lock]. On failure nothing more is held than
// before. Errors are those of Lock; the *lockerr.NotAcquiredError says who has the
// lock, since when, how long the queue is, and which place in it would have been
// this one's.
//
// It costs one round trip. When Redis does not answer, TryLock tries on until ctx
// ends, but no longer than a few seconds, or the lease if that is shorter.
func (m *Mutex) TryLock(ctx context.Context) (*lock.Hold, error) {
	shared, err := m.orUnmade().Want(ctx)
	if err != nil {
		return nil, err
	}
	defer shared.End()
	w := m.want(shared)
	bounded, cancel := session.Shortly(ctx)
	defer cancel()
	if h, has, err := w.Reenter(bounded); has {
		return w.Handle(ctx, h, err)
	}
	h, err := w.try(bounded)
	return w.Handle(ctx, h, err)
}

func (m *Mutex) want(shared *mutex.Want) *want {
	return &want{Want: shared, family: m.family}
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
// may be over before it is read. Errors: lockerr.ErrUnavailable, ErrRefused,
// ErrConfig.
func (m *Mutex) Inspect(ctx context.Context) (lock.Info, error) { return m.orUnmade().Inspect(ctx) }

// Queue reads who waits, in order: as many as asked for, after those to skip; and
// the length of the whole queue. It shows nobody where show is 0 or less. Dead waiters are
// in the queue until somebody passes over them. Queue costs one round trip for each
// thousand waiters shown, and changes nothing. While the queue moves, a waiter that stays
// is neither missed nor shown twice. Errors are those of Inspect; with one, there are no
// waiters and the length is 0.
func (m *Mutex) Queue(ctx context.Context, skip, show int) (waiters []lock.Waiter, length int, err error) {
	if err := m.orUnmade().Check(ctx); err != nil {
		return nil, 0, err
	}
	ctx, cancel := session.Shortly(ctx)
	defer cancel()
	return m.line().Show(ctx, skip, show)
}

func (m *Mutex) line() queue.Line {
	return queue.Line{Session: m.family.session, Name: m.named.Keys.Lock, Queue: m.named.Keys.Queue, Alive: m.named.Keys.Alive}
}

// RemoveWaiter takes a waiter out of the queue, by the acquisition that Queue
// showed, for operators. Its Lock returns lockerr.ErrRemoved, as soon as it hears
// of it, and does not queue again by itself, unless it is cut off from Redis for more than
// an hour and two heartbeats. It reports whether there was such a waiter; one that has
// been granted meanwhile keeps the lock, and the answer is false. It costs one round trip
// for each thousand waiters before it, and one more. Errors are those of Inspect, and
// lockerr.ErrIndeterminate; with one, the answer is false.
func (m *Mutex) RemoveWaiter(ctx context.Context, acquisition string) (removed bool, err error) {
	if err := m.orUnmade().Check(ctx); err != nil {
		return false, err
	}
	ctx, cancel := session.Shortly(ctx)
	defer cancel()
	return m.line().Remove(ctx, acquisition)
}

// ForceRelease ends the lock whoever has it, for operators; the next in the queue
// gets it. expected is the acquisition that Inspect showed, so that the lock is not
// taken from somebody who got it in between; empty means whoever has it when Redis
// is first asked, and nobody who comes after. It returns the acquisition that it ended,
// empty if there was none: nobody had the lock, or that holder released it by itself.
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
			s := m.family.session
			return lua.ForceReleaseFair(ctx, rdb, lua.ForceReleaseFairParams{
				Keys:     mutex.FairKeys(m.named.Keys),
				Expected: target, Channel: m.named.Keys.Channel,
				KeepFence: s.KeepFence, Clients: key.ClientPrefix, Cluster: s.Cluster(),
			})
		})
}
