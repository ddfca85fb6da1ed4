package reentrant

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// Mutex is a reentrant lock on one name. It is a cheap value without state of
// its own: make it where it is needed, and share it or not. Its methods may be
// called concurrently.
type Mutex struct {
	family   *Family
	keys     key.Mutex
	settings settings.Lock
	err      error // what is wrong with the name or the settings
}

// Mutex returns the mutex of a name. What is wrong with the name or the
// settings is told by every use of it.
func (f *Family) Mutex(name string, st settings.Lock) *Mutex {
	m := &Mutex{family: f, keys: key.ForMutex(name), settings: st}
	if m.err = key.CheckName(name); m.err == nil {
		m.err = m.settings.Complete()
	}
	return m
}

// Name is the name of the lock, with the client's prefix.
func (m *Mutex) Name() string { return m.keys.Lock }

// Lock waits until the owner in ctx has the lock, or ctx ends. An owner that has
// it already gets one hold more, under the lease and the renewal of its first
// one; a ctx without owner is a new owner. ctx bounds the wait and nothing else.
//
// On success the hold is kept alive until Unlock, and the work is to be done with
// its Context. On failure nothing more is held than before, and a grant that
// arrives late is given back in the background. Errors:
//   - lockerr.ErrNotAcquired, a *lockerr.NotAcquiredError, when ctx ended while
//     somebody else had the lock; errors.Is finds the end of ctx too.
//   - lockerr.ErrUnavailable or ErrIndeterminate when ctx ended while Redis did
//     not answer.
//   - lockerr.ErrLost when the owner had the lock and lost it. It is not
//     acquired anew: the work under the first hold would not know.
//   - lockerr.ErrRefused at once when Redis will not do it, ErrClosed,
//     ErrConfig.
//
// A free lock costs one round trip, as does each re-entry. Waiting goroutines
// of one client are served in order, and only one of them asks Redis: when it
// is told of a release, and at least once each poll bound.
func (m *Mutex) Lock(ctx context.Context) (*lock.Hold, error) {
	w, err := m.want(ctx)
	if err != nil {
		return nil, err
	}
	defer w.end()
	for {
		if a := w.l.heldBy(w.owner); a != nil {
			h, err := a.Reenter(ctx, w.site)
			if errors.Is(err, acquisition.ErrEnded) {
				continue // released meanwhile: a fresh lock
			}
			return w.handle(ctx, h, err)
		}
		wait, turn := w.l.join(w)
		if wait != nil {
			g, err := w.await(ctx, wait)
			switch {
			case err == nil && g.hold != nil && !g.hold.Trusted():
				_ = g.hold.Unlock(ctx) // it took too long to get here; anew
				continue
			case err != nil || g.hold != nil:
				return w.handle(ctx, g.hold, err)
			}
			turn = g.turn
		}
		if turn {
			h, err := w.contend(ctx)
			if errors.Is(err, errOwnChain) {
				continue
			}
			return w.handle(ctx, h, err)
		}
	}
}

// TryLock acquires the lock if that needs no waiting. An owner that has it
// already gets one hold more. On failure nothing more is held than before. Errors
// are those of Lock; while somebody else has the lock, a
// *lockerr.NotAcquiredError says who, and for how long.
//
// It costs one round trip. Goroutines that wait in Lock are not asked: TryLock
// may get ahead of them. When Redis does not answer, TryLock tries on until ctx
// ends, but no longer than a few seconds.
func (m *Mutex) TryLock(ctx context.Context) (*lock.Hold, error) {
	w, err := m.want(ctx)
	if err != nil {
		return nil, err
	}
	defer w.end()
	bounded, cancel := context.WithTimeout(ctx, shortly)
	defer cancel()
	if a := w.l.heldBy(w.owner); a != nil {
		h, err := a.Reenter(bounded, w.site)
		if !errors.Is(err, acquisition.ErrEnded) {
			return w.handle(ctx, h, err)
		}
	}
	h, err := w.try(bounded, w.l.tryJoin())
	return w.handle(ctx, h, err)
}

// shortly is how long an operation that does not wait for a lock tries to reach
// Redis when its context sets no end.
const shortly = 5 * time.Second

// Do runs fn under the lock: it waits for the lock like [Mutex.Lock], calls fn,
// and unlocks, also when fn panics.
//
// The context that fn gets is a child of ctx. It carries the owner, so that fn
// and what it calls may lock the same name again, and it ends when the lock is
// lost, with a *lockerr.LostError as its cause; fn decides what to do about that.
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
func (m *Mutex) Inspect(ctx context.Context) (lock.Info, error) {
	if m.err != nil {
		return lock.Info{}, m.err
	}
	ctx, cancel := context.WithTimeout(ctx, shortly)
	defer cancel()
	s := m.family.session
	answer, err := session.Do(ctx, s, session.Call{Op: "inspect", Name: m.keys.Lock, Limit: settings.DefaultCallLimit, Waits: true},
		func(ctx context.Context, _ lua.Time) (lua.InspectReply, error) {
			return lua.Inspect(ctx, s.Redis, m.keys.Lock, m.keys.Fence)
		})
	if err != nil {
		return lock.Info{}, err
	}
	return m.info(answer.Value), nil
}

// info turns a reply into what users see.
func (m *Mutex) info(r lua.InspectReply) lock.Info {
	info := lock.Info{
		Name: m.keys.Lock, Holder: r.Holder, Description: r.About,
		Holds: r.Holds, Remaining: r.Remaining, Fence: r.Fence,
	}
	const year2000 = lua.Time(946684800e6) // Redisson's counters stay below
	if fence := lua.Time(r.Fence); info.Held() && fence > year2000 && fence <= r.Now {
		info.Since = time.UnixMicro(r.Fence)
	}
	return info
}

// ForceRelease ends the lock whoever has it, for operators. expected is the
// acquisition that Inspect showed, so that the lock is not taken from somebody
// who got it in between; empty means whoever has it when Redis is first asked.
// It returns the acquisition that had the lock, empty if nobody had.
//
// The holder is not asked and works on until its next renewal tells it of the
// loss; until then only the fence protects. When another than the expected
// acquisition has the lock, the error is a *lockerr.NotAcquiredError and nothing
// was changed. It costs one round trip, and one more to learn whom to expect.
func (m *Mutex) ForceRelease(ctx context.Context, expected string) (holder string, err error) {
	ctx, cancel := context.WithTimeout(ctx, shortly)
	defer cancel()
	for {
		target := expected
		if target == "" {
			// Always somebody in particular: a copy of the command must not end
			// the lock of whoever comes next.
			info, err := m.Inspect(ctx)
			if err != nil || !info.Held() {
				return "", err
			}
			target = info.Holder
		}
		answer, err := m.forceRelease(ctx, target)
		switch {
		case err != nil:
			return "", err
		case answer.Value.Status == lua.Freed, answer.Strays != 0: // by an earlier attempt
			return target, nil
		case answer.Value.Status == lua.Nobody:
			return "", nil
		case expected != "":
			return answer.Value.Holder, &lockerr.NotAcquiredError{Name: m.keys.Lock, Holder: answer.Value.Holder}
		}
	}
}

func (m *Mutex) forceRelease(ctx context.Context, target string) (session.Answer[lua.ForceReleaseReply], error) {
	if m.err != nil {
		return session.Answer[lua.ForceReleaseReply]{}, m.err
	}
	s := m.family.session
	return session.Do(ctx, s, session.Call{Op: "force release", Name: m.keys.Lock, Limit: settings.DefaultCallLimit, Waits: true},
		func(ctx context.Context, _ lua.Time) (lua.ForceReleaseReply, error) {
			return lua.ForceRelease(ctx, s.Redis, lua.ForceReleaseParams{
				LockKey: m.keys.Lock, Channel: m.keys.Channel, Expected: target,
			})
		})
}

// want checks what can be checked before Redis is asked, and counts as a user
// of the local state until end.
func (m *Mutex) want(ctx context.Context) (*want, error) {
	switch {
	case m.err != nil:
		return nil, m.err
	case !m.family.session.Enter():
		return nil, &lockerr.OpError{Kind: lockerr.ErrClosed, Op: "lock", Name: m.keys.Lock}
	case ctx.Err() != nil: // wins over a free lock: the caller has gone
		m.family.session.Leave()
		return nil, &lockerr.NotAcquiredError{Name: m.keys.Lock, Err: session.Cause(ctx)}
	}
	w := &want{family: m.family, keys: m.keys, settings: &m.settings, owner: owner.From(ctx), site: acquisition.Here()}
	if w.owner == nil {
		w.owner = owner.New()
	}
	w.l = m.family.enter(m.keys.Lock)
	return w, nil
}

// end ends what want began. What the call leaves to do has been handed to the
// background before, so that closing waits for one or the other.
func (w *want) end() {
	w.family.leave(w.keys.Lock, w.l)
	w.family.session.Leave()
}

// handle makes the user's handle of a hold, unless the client closes: closing
// may have looked for what is held before this hold was there.
func (w *want) handle(ctx context.Context, h *acquisition.Hold, err error) (*lock.Hold, error) {
	switch {
	case err != nil:
		return nil, err
	case w.family.session.IsClosing():
		w.family.session.Background(func(ctx context.Context) { _ = h.A.Close(ctx) })
		return nil, &lockerr.OpError{Kind: lockerr.ErrClosed, Op: "lock", Name: w.keys.Lock}
	}
	return lock.New(ctx, h), nil
}
