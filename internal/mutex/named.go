package mutex

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// Shortly is how long an operation that does not wait for a lock tries to reach
// Redis when its context sets no end.
const Shortly = 5 * time.Second

// Named is a lock by its name, with its settings.
type Named struct {
	Book     *Book
	Keys     key.Mutex
	Settings settings.Lock
	Err      error // what is wrong with the name or the settings
}

// Lock returns the lock of a name. What is wrong with the name or the settings is
// told by every use of it.
func (b *Book) Lock(name string, st settings.Lock) Named {
	n := Named{Book: b, Keys: key.ForMutex(name), Settings: st}
	if n.Err = key.CheckName(name); n.Err == nil {
		n.Err = n.Settings.Complete()
	}
	return n
}

// Ask sends a command of an operation that belongs to no wait.
func Ask[T any](ctx context.Context, n *Named, op string, send func(ctx context.Context, rdb lua.Redis) (T, error)) (session.Answer[T], error) {
	s := n.Book.Session
	return session.Do(ctx, s, session.Call{Op: op, Name: n.Keys.Lock, Limit: settings.DefaultCallLimit, Waits: true},
		func(ctx context.Context, _ lua.Time) (T, error) { return send(ctx, s.Redis) })
}

// Inspect reads who has the lock, for how long, under which fence.
func (n *Named) Inspect(ctx context.Context) (lock.Info, error) {
	if n.Err != nil {
		return lock.Info{}, n.Err
	}
	ctx, cancel := context.WithTimeout(ctx, Shortly)
	defer cancel()
	return n.inspect(ctx, "inspect")
}

func (n *Named) inspect(ctx context.Context, op string) (lock.Info, error) {
	answer, err := Ask(ctx, n, op, func(ctx context.Context, rdb lua.Redis) (lua.InspectReply, error) {
		return lua.Inspect(ctx, rdb, n.Keys.Lock, n.Keys.Fence)
	})
	if err != nil {
		return lock.Info{}, err
	}
	return n.info(answer.Value), nil
}

// info turns a reply into what users see.
func (n *Named) info(r lua.InspectReply) lock.Info {
	info := lock.Info{
		Name: n.Keys.Lock, Holder: r.Holder, Description: r.About,
		Holds: r.Holds, Remaining: r.Remaining, Fence: r.Fence,
	}
	if !info.Held() {
		info.Remaining = 0
		return info
	}
	info.Since = Since(r.Fence, r.Now)
	return info
}

// Since is about when a fence was given out: fences are made from the server's
// clock. Zero when this one is not: Redisson counts from one.
func Since(fence int64, now lua.Time) time.Time {
	const year2000 = lua.Time(946684800e6) // Redisson's counters stay below
	if lua.Time(fence) <= year2000 || lua.Time(fence) > now {
		return time.Time{}
	}
	return time.UnixMicro(fence)
}

// ForceRelease ends the lock whoever has it. expected is the acquisition to end;
// empty means whoever has the lock when Redis is first asked. force sends the
// command that ends a certain acquisition.
func (n *Named) ForceRelease(ctx context.Context, expected string,
	force func(ctx context.Context, rdb lua.Redis, target string) (lua.ForceReleaseReply, error),
) (holder string, err error) {
	if n.Err != nil {
		return "", n.Err
	}
	ctx, cancel := context.WithTimeout(ctx, Shortly)
	defer cancel()
	for {
		target := expected
		if target == "" {
			// Always somebody in particular: a copy of the command must not end
			// the lock of whoever comes next.
			info, err := n.inspect(ctx, "force release")
			if err != nil || !info.Held() {
				return "", err
			}
			target = info.Holder
		}
		answer, err := Ask(ctx, n, "force release", func(ctx context.Context, rdb lua.Redis) (lua.ForceReleaseReply, error) {
			return force(ctx, rdb, target)
		})
		switch {
		case err != nil:
			return "", err
		case answer.Value.Status == lua.Freed, answer.Strays.Any(): // by an earlier attempt
			return target, nil
		case answer.Value.Status == lua.Nobody:
			return "", nil
		case expected != "":
			return answer.Value.Holder, &lockerr.NotAcquiredError{Name: n.Keys.Lock, Holder: answer.Value.Holder}
		}
	}
}
