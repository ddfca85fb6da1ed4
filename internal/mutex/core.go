package mutex

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// Core is the lock of a name, with its settings.
type Core struct {
	Registry  *Registry
	Keys      *key.Mutex
	Settings  *settings.Lock
	ConfigErr error // what is wrong with the name or the settings
}

// NewCore returns the core of the mutex of a name. If the name or the settings are not usable,
// every use of it returns an error.
func (r *Registry) NewCore(name string, st *settings.Lock) Core {
	if r == nil {
		return Core{} // of a manager that no client made
	}
	keys, err := r.keys.Get(name)
	if err == nil {
		err = st.Complete()
	}
	return Core{Registry: r, Keys: keys, Settings: st, ConfigErr: err}
}

// Name returns the name of the lock. It is empty if no client made the lock.
func (c *Core) Name() string {
	if c.Keys == nil {
		return ""
	}
	return c.Keys.Lock
}

// HoldFrom returns the innermost hold of the lock that ctx descends from.
func (c *Core) HoldFrom(ctx context.Context) (*lock.Hold, bool) {
	if c.Check(ctx) != nil {
		return nil, false
	}
	h, ok := ctx.Value(acquisition.NewSearch(ctx, c.Registry.Session, c.Name())).(*lock.Hold)
	return h, ok
}

// Check returns an error if the lock or the context is not usable.
func (c *Core) Check(ctx context.Context) error {
	switch {
	case c.Registry == nil:
		return settings.ErrNoClient
	case c.ConfigErr != nil:
		return c.ConfigErr
	}
	return session.CheckContext(ctx)
}

// operation returns how to send a command that is not part of a wait.
func (c *Core) operation(op string) session.Operation {
	return session.Operation{Op: op, Name: c.Keys.Lock, AttemptTimeout: settings.DefaultAttemptTimeout, StopOnClose: true}
}

// Inspect reads who has the lock, for how long, and under which fence.
func (c *Core) Inspect(ctx context.Context) (lock.Info, error) {
	if err := c.Check(ctx); err != nil {
		return lock.Info{}, err
	}
	ctx, cancel := session.WithDefaultTimeout(ctx)
	defer cancel()
	answer, err := session.Do(ctx, c.Registry.Session, c.operation("inspect"), func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.InspectReply, error) {
		return lua.Inspect(ctx, rdb, c.Keys.Lock, c.Keys.Fence)
	})
	if err != nil {
		return lock.Info{}, err
	}
	return c.toInfo(answer.Value), nil
}

// toInfo converts a reply for users.
func (c *Core) toInfo(r lua.InspectReply) lock.Info {
	info := lock.Info{
		Name: c.Keys.Lock, Holder: r.Holder, Description: r.Description,
		Holds: r.Holds, Remaining: r.Remaining, Fence: r.Fence,
	}
	if !info.Held() {
		info.Remaining = 0
		return info
	}
	info.Since = GrantTime(r.Fence, r.Now)
	return info
}

// GrantTime returns roughly when a fence was given out: fences are made from the server's clock.
// It returns zero for a fence that is not: Redisson counts from one.
func GrantTime(fence int64, now lua.Time) time.Time {
	const year2000 = lua.Time(946684800e6) // counters of Redisson stay below
	if lua.Time(fence) < year2000 || lua.Time(fence) > now {
		return time.Time{}
	}
	return time.UnixMicro(fence)
}

var errNoMutex = errors.New("the hash at this key is not a mutex")

// noHolder is an expected holder that no lock has. A forced release for it ends nothing, and
// answers who has the lock.
const noHolder = "nobody"

// resolveTarget returns the acquisition to end, or "" if nobody has the lock. It returns a certain
// acquisition, because a copy of the command must not end the lock of the next holder. It returns
// only acquisitions in the form of locks, because the hash of another program must not be deleted.
// The forced release itself asks who has the lock: a replica may lack the lock, and only a server
// that takes writes answers that command.
func (c *Core) resolveTarget(expected string, force func(target string) (session.Answer[lua.ForceReleaseReply], error)) (acquisition string, err error) {
	if key.IsAcquisition(expected) {
		return expected, nil
	}
	answer, err := force(noHolder)
	holder := answer.Value.Holder
	switch {
	case err != nil || answer.Value.Status == lua.NotHeld:
		return "", err
	case !key.IsAcquisition(holder):
		return "", &lockerr.OpError{Kind: lockerr.ErrRefused, Op: "force release", Name: c.Keys.Lock, Err: errNoMutex}
	case expected != "":
		return holder, &lockerr.NotAcquiredError{Name: c.Keys.Lock, Holder: holder}
	}
	return holder, nil
}

// errTargetUnknown says why nobody knows whether a forced release was done.
var errTargetUnknown = errors.New("the expected acquisition does not have the lock; an unanswered command may have ended it, or it had ended before")

// ForceRelease ends the lock, if its holder is an acquisition of ours or of Redisson. expected is
// the acquisition to end. If it is empty, ForceRelease ends the acquisition that has the lock when
// Redis is first asked. force sends the command that ends a certain acquisition.
//
// ForceRelease returns the acquisition that it ended. The result is empty if there was none to end,
// or if the holder that was found released the lock by itself.
//
// After a lost reply, Redis may answer a copy of the command that another acquisition has the lock,
// or nobody. If expected was empty, the holder that was found does not have the lock any more, and
// counts as ended. If the caller named the holder, nobody knows whether it had the lock at all. The
// error is then ErrIndeterminate.
func (c *Core) ForceRelease(ctx context.Context, expected string,
	force func(ctx context.Context, rdb lua.Redis, target string) (lua.ForceReleaseReply, error),
) (holder string, err error) {
	if err := c.Check(ctx); err != nil {
		return "", err
	}
	ctx, cancel := session.OperatorContext(ctx)
	defer cancel()
	returned := false
	defer func() {
		if !returned { // a hook has ended the goroutine; the command may have freed the lock
			c.grantQueuedInBackground(c.operation("force release"), session.InFlight{})
		}
	}()
	holder, err = c.sendForceRelease(ctx, expected, force)
	returned = true
	return holder, err
}

func (c *Core) sendForceRelease(ctx context.Context, expected string,
	force func(ctx context.Context, rdb lua.Redis, target string) (lua.ForceReleaseReply, error),
) (holder string, err error) {
	call := c.operation("force release")
	end := func(target string) (session.Answer[lua.ForceReleaseReply], error) {
		answer, err := session.Do(ctx, c.Registry.Session, call, func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.ForceReleaseReply, error) {
			return force(ctx, rdb, target)
		})
		lostReply := answer.InFlight.Any() && answer.Value.Status == lua.NotHeld // it may have said that there are waiters
		switch {
		case err != nil && answer.InFlight.Any():
			c.grantQueued(ctx, call, answer.InFlight)
		case err == nil && (answer.Value.More || answer.Value.HasWaiters || lostReply):
			c.grantQueued(ctx, call, session.InFlight{})
		}
		return answer, err
	}
	target, err := c.resolveTarget(expected, end)
	if err != nil || target == "" {
		return target, err
	}
	answer, err := end(target)
	if err != nil {
		return "", err
	}
	freed, unsure := answer.Value.Status == lua.Freed, answer.InFlight.Any()
	switch {
	case freed, unsure && expected == "":
		return target, nil
	case unsure:
		return "", &lockerr.OpError{Kind: lockerr.ErrIndeterminate, Op: "force release", Name: c.Keys.Lock, Err: errTargetUnknown}
	case answer.Value.Status == lua.NotHeld, expected == "":
		return "", nil
	}
	return answer.Value.Holder, &lockerr.NotAcquiredError{Name: c.Keys.Lock, Holder: answer.Value.Holder}
}
