package queue

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

// Line is a queue as operators see it. Its methods take as long as Redis needs to
// answer, and ctx allows.
type Line struct {
	Session      *session.Session
	Name         string // of the lock, for errors
	Queue, Alive string // keys
}

// Show reads who waits, in order: as many as asked for, after those to skip; and the
// length of the whole queue. It shows nobody for 0 or less.
//
// The queue moves between two pages, so each page begins behind the ticket of the last
// waiter of the page before. Tickets do not move, and waiters with the same ticket stand on
// one page. So a waiter that stays is neither missed nor shown twice, and each page is one
// command.
func (l Line) Show(ctx context.Context, skip, show int) (waiters []lock.Waiter, length int, err error) {
	skip, show = min(max(skip, 0), longest), max(show, 0)
	for behind := ""; ; {
		wants := min(max(show-len(waiters), 1), page)
		part, err := l.read(ctx, skip, behind, wants)
		if err != nil {
			return nil, 0, err
		}
		for _, w := range part.Waiters[:min(len(part.Waiters), show-len(waiters))] {
			waiters = append(waiters, lock.Waiter{
				Acquisition: w.Acquisition, Units: w.Units, Description: w.About, Since: time.UnixMicro(w.Ticket),
				Heartbeat: w.Heartbeat, Left: max(w.Left, 0),
			})
		}
		if len(waiters) >= show || len(part.Waiters) < wants {
			return waiters, part.Length, nil
		}
		behind = part.Behind
	}
}

func (l Line) read(ctx context.Context, skip int, behind string, show int) (lua.QueueReply, error) {
	answer, err := session.Do(ctx, l.Session, l.call("look at the queue"), func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.QueueReply, error) {
		return lua.Queue(ctx, rdb, l.Queue, l.Alive, skip, behind, show)
	})
	return answer.Value, err
}

// Remove takes a waiter out, by the acquisition that it would become, and reports
// whether it was there.
func (l Line) Remove(ctx context.Context, acquisition string) (removed bool, err error) {
	waiter, found, err := l.find(ctx, acquisition)
	if err != nil || !found {
		return false, err
	}
	answer, err := session.Do(ctx, l.Session, l.call("remove a waiter"), func(ctx context.Context, rdb lua.Redis, _ lua.Time) (bool, error) {
		return lua.Remove(ctx, rdb, l.Queue, l.Alive, waiter, key.ClientPrefix)
	})
	return err == nil && answer.Value, err
}

// find looks for a waiter, in pages as those of Show.
func (l Line) find(ctx context.Context, acquisition string) (w lua.Waiter, found bool, err error) {
	for behind := ""; ; {
		r, err := l.findIn(ctx, acquisition, behind)
		if err != nil || r.Status == lua.Queued || r.Behind == "" {
			return r.Waiter, err == nil && r.Status == lua.Queued, err
		}
		behind = r.Behind
	}
}

func (l Line) findIn(ctx context.Context, acquisition, behind string) (lua.FindReply, error) {
	answer, err := session.Do(ctx, l.Session, l.call("remove a waiter"), func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.FindReply, error) {
		return lua.Find(ctx, rdb, l.Queue, l.Alive, acquisition, behind, page)
	})
	return answer.Value, err
}

// page is how many waiters one command reads: more would keep the server busy.
const page = 1000

// longest is more waiters than any queue has. The sum of two such numbers is one that a
// script still writes without an exponent.
const longest = 1 << 30

func (l Line) call(op string) session.Call {
	return session.Call{Op: op, Name: l.Name, Limit: settings.DefaultCallLimit, Waits: true}
}
