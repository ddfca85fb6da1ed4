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
func (l Line) Show(ctx context.Context, skip, show int) (waiters []lock.Waiter, length int, err error) {
	length, err = l.walk(ctx, skip, show, func(w lua.Standing) (goOn bool) {
		if show <= 0 {
			return false
		}
		waiters = append(waiters, lock.Waiter{
			Acquisition: w.Acquisition, Units: w.Units, Description: w.About, Since: time.UnixMicro(w.Ticket),
			Heartbeat: w.Heartbeat, Left: max(w.Left, 0),
		})
		return len(waiters) < show
	})
	if err != nil {
		return nil, 0, err
	}
	return waiters, length, nil
}

// Remove takes a waiter out, by the acquisition that it would become, and reports
// whether it was there.
func (l Line) Remove(ctx context.Context, acquisition string) (removed bool, err error) {
	var found *lua.Waiter
	_, err = l.walk(ctx, 0, page, func(w lua.Standing) (goOn bool) {
		if w.Acquisition == acquisition {
			found = &w.Waiter
		}
		return found == nil
	})
	if err != nil || found == nil {
		return false, err
	}
	waiter := *found // shared with attempts that are left behind
	answer, err := session.Do(ctx, l.Session, l.call("remove a waiter"), func(ctx context.Context, rdb lua.Redis, _ lua.Time) (bool, error) {
		return lua.Remove(ctx, rdb, l.Queue, l.Alive, waiter, key.ClientPrefix)
	})
	return err == nil && answer.Value, err
}

// page is how many waiters one command reads: more would keep the server busy.
const page = 1000

// longest is more waiters than any queue has. The sum of two such numbers is one that a
// script still writes without an exponent.
const longest = 1 << 30

// walk reads the queue, after those to skip, until see wants no more; how many it wants
// is a hint. It returns the length of the whole queue.
//
// The queue moves between two pages. So each page begins with the last waiter that was
// seen. Where it does not, waiters in front have left, and the page before is read again:
// no waiter that stays is missed, and none is seen twice.
func (l Line) walk(ctx context.Context, skip, wants int, see func(w lua.Standing) (goOn bool)) (length int, err error) {
	skip, wants = min(max(skip, 0), longest), min(max(wants, 1), page)
	var last *lua.Standing
	for at := skip; ; {
		reply, err := l.read(ctx, at, wants)
		if err != nil {
			return 0, err
		}
		all := reply.Waiters
		if at > skip && (len(all) == 0 || isBehind(all[0], last)) {
			at = max(skip, at-wants)
			continue
		}
		for _, w := range all {
			if !isBehind(w, last) {
				continue
			}
			if !see(w) {
				return reply.Length, nil
			}
			last = &w
		}
		if len(all) < wants {
			return reply.Length, nil
		}
		at += wants - 1
	}
}

// isBehind reports whether a waiter stands behind another: Redis orders those with one
// ticket by their names.
func isBehind(w lua.Standing, other *lua.Standing) bool {
	return other == nil || w.Ticket > other.Ticket || w.Ticket == other.Ticket && w.Acquisition > other.Acquisition
}

func (l Line) read(ctx context.Context, skip, show int) (lua.QueueReply, error) {
	answer, err := session.Do(ctx, l.Session, l.call("look at the queue"), func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.QueueReply, error) {
		return lua.Queue(ctx, rdb, l.Queue, l.Alive, skip, show)
	})
	return answer.Value, err
}

func (l Line) call(op string) session.Call {
	return session.Call{Op: op, Name: l.Name, Limit: settings.DefaultCallLimit, Waits: true}
}
