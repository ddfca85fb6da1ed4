package fair

import (
	"context"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/waitqueue"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

// Mutex is a re-entrant lock on one name that is granted in order of arrival. It is a cheap value
// without state of its own: make it where it is needed, and share it or not. Its methods may be
// called concurrently. Methods of a nil Mutex, or of one that no client made, return a
// *lockerr.ConfigError.
type Mutex struct {
	manager *manager
	core    mutex.Core
}

var _ lock.Locker = (*Mutex)(nil)

func (m *manager) newMutex(name string, st *settings.Lock) *Mutex {
	return &Mutex{manager: m, core: m.registry.NewCore(name, st)}
}

// Name returns the name of the lock, with the client's prefix.
func (m *Mutex) Name() string { return m.coreOrEmpty().Name() }

// coreOrEmpty returns the lock by its name; for a nil mutex, a lock that no client made.
func (m *Mutex) coreOrEmpty() *mutex.Core {
	if m == nil {
		return new(mutex.Core)
	}
	return &m.core
}

// Lock waits until it has the lock, ctx ends, or the wait timeout is over
// (redlatch.WithWaitTimeout). It waits behind all requests that came before, of any process. With
// the context of a hold of the lock, or one derived from it, Lock re-enters. It then adds another
// hold immediately, under the lease and the renewal of the first hold. With any other context it
// waits, even if the same goroutine holds the lock. ctx bounds the wait and nothing else.
//
// The order is that of arrival at the server. A waiter sends heartbeats to show that it is alive. A
// waiter whose heartbeat ends is dropped. Crashed waiters delay the others until one
// heartbeat after the last crash, at most, or if all had crashed before, until one heartbeat after
// the next one came. While the server stands still, for a minute or less, nobody is dropped. A
// waiter that lost its place queues again, with its old ticket, and is notified
// (redlatch.WithWaitCallback).
//
// On success the client keeps the hold alive until Unlock. Do the work with the Context of the
// hold. On failure the caller holds nothing more than before, and its place is given up. A grant
// that arrives late moves on to the next waiter immediately. Errors:
//   - lockerr.ErrNotAcquired, a *lockerr.NotAcquiredError, if ctx ended while someone else held the
//     lock. It says who, since when, and the position. errors.Is also finds the end of ctx. If an
//     operator removed the waiter from the queue, the error also matches lockerr.ErrRemoved.
//   - lockerr.ErrUnavailable or ErrIndeterminate if the wait ended while Redis did not answer.
//     Without a wait timeout and without an end of ctx, Lock waits through an outage.
//   - only the error of ctx, if it had ended before.
//   - lockerr.ErrLost if the hold of ctx was lost, and then context.Canceled beside it. Lock does
//     not acquire the lock anew before the lost holds are unlocked, because the work under them
//     would not know.
//   - lockerr.ErrNotReplicated, a *lockerr.NotReplicatedError, immediately if too few replicas
//     acknowledged the grant in time. Only redlatch.WithReplicas makes them do so.
//   - lockerr.ErrRefused immediately if Redis refuses, ErrClosed, ErrConfig.
//
// If redlatch.WithWaitTimeout ends the wait, Lock returns ErrNotAcquired, ErrUnavailable or
// ErrIndeterminate in the same cases. The error then matches no end of ctx. A wait deadline of ctx
// (redlatch.WithWaitDeadline) ends the wait in the same way. If it is over when the call begins,
// Lock does not wait, and asks Redis once.
//
// A free lock costs one round trip, and so does each re-entry. Each costs one more if the server
// does not know the script yet. A waiter asks once more when its
// client listens, and the first waiter of a client subscribes before that. After that it sends its
// heartbeats, a hundred waiters in one command. The release of the holder grants the lock to the
// first waiter and sends a message to its client. The waiter then asks Redis. So it takes two round
// trips from an Unlock to the work of the next holder.
func (m *Mutex) Lock(ctx context.Context) (*lock.Hold, error) {
	w := newRequest(false)
	if err := m.coreOrEmpty().Begin(ctx, &w.Request); err != nil {
		return nil, err
	}
	defer w.Close()
	w.manager = m.manager
	bounded, cancel := w.WaitContext(ctx)
	defer cancel()
	acquire := w.contend
	if session.LateRefusal(bounded) != nil {
		acquire = w.try
	}
	return w.AcquireOrReenter(ctx, bounded, acquire)
}

// TryLock acquires the lock if it is free and nobody waits. It does not wait, never gets ahead of
// the queue, and has no place in it. It re-enters like [Mutex.Lock]. On failure the caller holds
// nothing more than before. Errors are those of Lock. The *lockerr.NotAcquiredError says who holds
// the lock, since when, how long the queue is, and which place the caller would have had.
//
// It costs one round trip, and more if very many expired waiters have to be dropped first, some
// hundreds in each. If Redis does not answer, TryLock keeps trying until ctx ends, but no longer
// than five seconds or the wait timeout, whichever is shorter, and no longer than a lease after a
// command that Redis may have run.
func (m *Mutex) TryLock(ctx context.Context) (*lock.Hold, error) {
	w := newRequest(true)
	if err := m.coreOrEmpty().Begin(ctx, &w.Request); err != nil {
		return nil, err
	}
	defer w.Close()
	w.manager = m.manager
	bounded, cancel := w.WaitContext(ctx)
	defer cancel()
	return w.AcquireOrReenter(ctx, bounded, w.try)
}

// Do runs fn under the lock. It waits for the lock like [Mutex.Lock], calls fn, and unlocks, also
// if fn panics.
//
// The context that fn gets is a child of ctx. With it, fn and the functions that fn calls may lock
// the same name again. Goroutines that fn starts with it may do so all at once, but exclude each
// other from other locks. The context ends if the lock is lost, with a *lockerr.LostError as its
// cause. fn decides what to do then. [Mutex.HoldFrom] returns the hold, which has the fence.
//
// ctx bounds the wait and fn. To bound only the wait, make the mutex with redlatch.WithWaitTimeout.
//
// Do returns the error of Lock, or that of fn. If the lock was lost while fn ran, the error also
// matches lockerr.ErrLost.
//
// After fn, Do waits until Redis confirms the release, but no longer than one command may take:
// normally two seconds at most. If no confirmation comes, Do returns what fn returned, because fn
// ran under the lock. The client keeps trying in the background, and normally stops renewing the
// lock. It goes on renewing only while another command of the lock is in flight. Observers get
// event.Released, whose Err says why the release was late. Nested calls of Do for different locks
// wait at each level. A wait deadline (redlatch.WithWaitDeadline) shortens that wait. If Redis
// refuses the release, the error also matches lockerr.ErrRefused. If the client was closed, it also
// matches ErrClosed.
//
// A nested Do of the same lock releases nothing: the last hold frees the lock. So it sends Redis
// the number of the remaining holds only once. If that fails, Do returns what fn returned, and the
// client corrects the number in the background. Errors that match lockerr.ErrLost or ErrClosed are
// still returned.
//
// Do costs two round trips if the lock is free.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return lock.Do(ctx, m.Lock, fn)
}

// TryDo runs fn under the lock if the lock is free and nobody waits, and otherwise does not run it.
// It acquires the lock like [Mutex.TryLock], and is like [Mutex.Do] in all else.
//
// If fn did not run because somebody else has the lock, the error is a *lockerr.NotAcquiredError
// for this name. fn may return such an error of another lock. TryDo costs two round trips if it
// runs fn, and one if it does not; see TryLock for more.
func (m *Mutex) TryDo(ctx context.Context, fn func(ctx context.Context) error) error {
	return lock.Do(ctx, m.TryLock, fn)
}

// Attach goes on with a lock that [lock.Hold.Export] has exported, here or in another process. text
// is what Export returned, for this name and with this prefix. Attach does not wait for the lock.
// On success, the result is a hold like any other: the client renews it until Unlock, it has a
// fresh id and a larger fence, and its context re-enters. The owner is that of ctx, as for Lock.
//
// On failure the caller holds nothing. Errors:
//   - lockerr.ErrLost if the exported lock has ended, somebody has taken it over, or another Attach
//     with this text came first. Also if a hold of this lock that ctx descends from was lost and
//     not unlocked yet, as for Lock: the *lockerr.LostError names that hold, and the text stays
//     good.
//   - lockerr.ErrConfig if text is not of an exported hold of this lock.
//   - lockerr.ErrIndeterminate if nobody knows whether Redis has attached it. The client then frees
//     the lock in the background.
//   - lockerr.ErrNotReplicated, with WithReplicas: Redis has attached it, too few replicas
//     acknowledged that, and the client has released the lock. No Attach with this text can succeed
//     any more.
//   - lockerr.ErrClosed: the client closes. If Redis has attached the lock, the client frees it.
//   - lockerr.ErrUnavailable, ErrRefused, or only the error of ctx: Redis has not attached it, and
//     Attach may be called again while Redis keeps the lock.
//
// Attach costs one round trip, and one more if it is the first call of its client. It tries until
// ctx ends, but no longer than five seconds, nor than about a lease after a command that Redis may
// have run. [lock.Hold.Export] says what it costs in safety.
func (m *Mutex) Attach(ctx context.Context, text string) (*lock.Hold, error) {
	w := newRequest(true)
	if err := m.coreOrEmpty().Begin(ctx, &w.Request); err != nil {
		return nil, err
	}
	defer w.Close()
	w.manager = m.manager
	g, err := w.Attach(ctx, text, w.CleanUp)
	if err != nil {
		return w.NewHandle(ctx, ctx, nil, err)
	}
	return w.NewHandle(ctx, ctx, w.startHold(g), nil)
}

// HoldFrom returns the hold of this lock that ctx descends from, for instance for its fence inside
// of nested locks. Of several, it is the innermost. A hold of the plain mutex of the name with the
// same client counts too. The hold may have ended meanwhile, see [lock.Hold.Trusted]. The function
// must not unlock the hold of its caller. If ctx does not re-enter the lock with such a hold, or
// the mutex is not usable, the result is nil and false. HoldFrom sends no command.
func (m *Mutex) HoldFrom(ctx context.Context) (*lock.Hold, bool) {
	return m.coreOrEmpty().HoldFrom(ctx)
}

// Inspect reads who holds the lock, for how long, and under which fence. It costs one round trip
// and changes nothing. It is for people and dashboards: the result may be out of date when it is
// read. Errors: lockerr.ErrUnavailable, ErrIndeterminate, ErrRefused, ErrClosed, ErrConfig.
func (m *Mutex) Inspect(ctx context.Context) (lock.Info, error) { return m.coreOrEmpty().Inspect(ctx) }

// Queue reads who waits, in order. It skips the first skip waiters, and returns at most show of
// those behind, and the length of the whole queue. If show is 0 or less, it returns no waiters.
// Expired waiters stay in the queue until someone drops them.
//
// Queue costs one round trip for each thousand waiters shown, and changes nothing. While the queue
// moves, a waiter that stays is neither missed nor shown twice. Errors are those of Inspect. With
// an error, there are no waiters and the length is 0.
func (m *Mutex) Queue(ctx context.Context, skip, show int) (waiters []lock.Waiter, length int, err error) {
	if err := m.coreOrEmpty().Check(ctx); err != nil {
		return nil, 0, err
	}
	ctx, cancel := session.WithDefaultTimeout(ctx)
	defer cancel()
	return m.inspector().List(ctx, skip, show)
}

func (m *Mutex) inspector() waitqueue.Inspector {
	return waitqueue.Inspector{Session: m.manager.session, Name: m.core.Keys.Lock, Queue: m.core.Keys.Queue, Alive: m.core.Keys.Alive}
}

// RemoveWaiter removes a waiter from the queue, for operators. acquisition is the one that Queue
// showed. The Lock of that waiter returns lockerr.ErrRemoved as soon as it finds out. It does not
// queue again by itself, unless it is cut off from Redis for more than an hour and two heartbeats.
//
// RemoveWaiter reports whether there was such a waiter. If the waiter has been granted meanwhile,
// it keeps the lock, and the result is false. If the lock is free, the next waiter gets it at once.
//
// RemoveWaiter costs one round trip for each thousand waiters before it, and one more, or two if it
// removes the waiter. Errors are those of Inspect. With an error, the result is false.
func (m *Mutex) RemoveWaiter(ctx context.Context, acquisition string) (removed bool, err error) {
	if err := m.coreOrEmpty().Check(ctx); err != nil {
		return false, err
	}
	ctx, cancel := session.WithDefaultTimeout(ctx)
	defer cancel()
	removed, err = m.inspector().Remove(ctx, acquisition)
	if removed {
		m.core.ServeQueue(ctx)
	}
	return removed, err
}

// ForceRelease ends the lock, for operators. The next waiter in the queue gets it. expected is the
// acquisition that Inspect showed, so that ForceRelease does not end the lock of someone who got it
// in between. If expected is empty, ForceRelease ends the lock of the acquisition that holds it
// when Redis is first asked, and of no later one. It returns the acquisition that it ended. The
// result is empty if there was none: nobody held the lock, or that holder released it by itself.
//
// ForceRelease does not ask the holder. The holder works on until its next renewal finds the loss.
// Until then only the fence protects. If another acquisition than the expected one holds the lock,
// the error is a *lockerr.NotAcquiredError and nothing was changed. If a reply was lost, and the
// expected acquisition does not hold the lock afterwards, the error matches
// lockerr.ErrIndeterminate. Either this call ended it, or it had ended before.
//
// ForceRelease costs one round trip, and one more to find the holder if expected is empty.
func (m *Mutex) ForceRelease(ctx context.Context, expected string) (holder string, err error) {
	return m.coreOrEmpty().ForceRelease(ctx, expected,
		func(ctx context.Context, rdb lua.Redis, target string) (lua.ForceReleaseReply, error) {
			s := m.manager.session
			return lua.ForceReleaseFair(ctx, rdb, lua.ForceReleaseFairParams{
				Keys:     mutex.FairKeys(m.core.Keys),
				Expected: target, Channel: m.core.Keys.Channel,
				FenceRetention: s.FenceRetention, ClientChannels: key.ClientPrefix, Cluster: s.Cluster(),
			})
		})
}
