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
// length of the whole queue.
func (l Line) Show(ctx context.Context, skip, show int) (waiters []lock.Waiter, length int, err error) {
	reply, err := l.read(ctx, skip, show)
	if err != nil {
		return nil, 0, err
	}
	for _, w := range reply.Waiters {
		waiters = append(waiters, lock.Waiter{
			Acquisition: w.Acquisition, Units: w.Units, Description: w.About, Since: time.UnixMicro(w.Ticket),
			Heartbeat: w.Heartbeat, Left: max(w.Left, 0),
		})
	}
	return waiters, reply.Length, nil
}

// longest is more waiters than any queue has. The sum of two such numbers is one that a
// script still writes without an exponent.
const longest = 1 << 30

func (l Line) read(ctx context.Context, skip, show int) (lua.QueueReply, error) {
	answer, err := session.Do(ctx, l.Session, l.call("look at the queue"), func(ctx context.Context, _ lua.Time) (lua.QueueReply, error) {
		return lua.Queue(ctx, l.Session.Redis, l.Queue, l.Alive, min(max(skip, 0), longest), min(max(show, 1), longest))
	})
	return answer.Value, err
}

// Remove takes a waiter out, by the acquisition that it would become, and reports
// whether it was there.
func (l Line) Remove(ctx context.Context, acquisition string) (removed bool, err error) {
	const page = 1000
	for skip := 0; ; skip += page {
		reply, err := l.read(ctx, skip, page)
		if err != nil || len(reply.Waiters) == 0 {
			return false, err
		}
		for _, w := range reply.Waiters {
			if w.Acquisition != acquisition {
				continue
			}
			answer, err := session.Do(ctx, l.Session, l.call("remove a waiter"), func(ctx context.Context, _ lua.Time) (bool, error) {
				return lua.Remove(ctx, l.Session.Redis, l.Queue, l.Alive, w.Waiter, key.ClientPrefix)
			})
			return answer.Value || err == nil && answer.Strays.Any(), err // unanswered, it may have been done
		}
	}
}

func (l Line) call(op string) session.Call {
	return session.Call{Op: op, Name: l.Name, Limit: settings.DefaultCallLimit, Waits: true}
}
