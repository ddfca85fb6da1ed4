package waitqueue

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

// Inspector lists and removes the waiters of a queue, for operators. Its methods block until Redis
// answers, ctx ends, or the client closes.
type Inspector struct {
	Session      *session.Session
	Name         string // of the lock, for errors
	Queue, Alive string // keys
}

// List skips the first skip waiters, in queue order, and returns up to show of the others. It also
// returns the length of the whole queue. If show is 0 or less, it returns no waiters.
//
// List reads pages, with one command for each. The queue changes between two pages, so each page
// begins after the ticket of the last waiter of the page before. Tickets do not change, and waiters
// with the same ticket are on one page. So List neither misses a waiter that stays in the queue nor
// returns it twice.
func (i Inspector) List(ctx context.Context, skip, show int) (waiters []lock.Waiter, length int, err error) {
	skip, show = min(max(skip, 0), maxSkip), max(show, 0)
	for behind := ""; ; {
		wants := min(max(show-len(waiters), 1), pageSize)
		part, err := i.readPage(ctx, skip, behind, wants)
		if err != nil {
			return nil, 0, err
		}
		for _, w := range part.Waiters[:min(len(part.Waiters), show-len(waiters))] {
			waiters = append(waiters, lock.Waiter{
				ID: w.Acquisition, Units: w.Units, Description: w.Description, Since: time.UnixMicro(w.Ticket),
				Heartbeat: w.Heartbeat, HeartbeatLeft: max(w.HeartbeatLeft, 0),
			})
		}
		if len(waiters) >= show || len(part.Waiters) < wants {
			return waiters, part.Length, nil
		}
		behind = part.After
	}
}

func (i Inspector) readPage(ctx context.Context, skip int, behind string, show int) (lua.QueueReply, error) {
	answer, err := session.Do(ctx, i.Session, i.operation("look at the queue"), func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.QueueReply, error) {
		return lua.Queue(ctx, rdb, i.Queue, i.Alive, skip, behind, show)
	})
	return answer.Value, err
}

// Remove removes the waiter with this acquisition id, and reports whether it was there.
func (i Inspector) Remove(ctx context.Context, acquisition string) (removed bool, err error) {
	waiter, found, err := i.find(ctx, acquisition)
	if err != nil || !found {
		return false, err
	}
	answer, err := session.Do(ctx, i.Session, i.operation("remove a waiter"), func(ctx context.Context, rdb lua.Redis, _ lua.Time) (bool, error) {
		return lua.Remove(ctx, rdb, i.Queue, i.Alive, waiter, key.ClientPrefix)
	})
	return err == nil && answer.Value, err
}

// find looks for a waiter, in pages like those of List.
func (i Inspector) find(ctx context.Context, acquisition string) (w lua.Waiter, found bool, err error) {
	for behind := ""; ; {
		r, err := i.findInPage(ctx, acquisition, behind)
		if err != nil || r.Status == lua.Queued || r.After == "" {
			return r.Waiter, err == nil && r.Status == lua.Queued, err
		}
		behind = r.After
	}
}

func (i Inspector) findInPage(ctx context.Context, acquisition, behind string) (lua.FindReply, error) {
	answer, err := session.Do(ctx, i.Session, i.operation("remove a waiter"), func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.FindReply, error) {
		return lua.Find(ctx, rdb, i.Queue, i.Alive, acquisition, behind, pageSize)
	})
	return answer.Value, err
}

// pageSize is the number of waiters that one command reads. More would block the server for too
// long.
const pageSize = 1000

// maxSkip is more than the length of any queue. It is small enough that Lua writes the sum of two
// such numbers without an exponent.
const maxSkip = 1 << 30

func (i Inspector) operation(op string) session.Operation {
	return session.Operation{Op: op, Name: i.Name, AttemptTimeout: settings.DefaultAttemptTimeout, StopOnClose: true}
}
