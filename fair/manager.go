package fair

import (
	"context"

	"github.com/redlatch/redlatch/internal/construct"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/waitqueue"
	"github.com/redlatch/redlatch/lua"
)

// manager is what the fair mutexes of one client share. Users have it inside their redlatch.Client.
type manager struct {
	session  *session.Session
	registry *mutex.Registry
	waiters  *waitqueue.WaiterSet[lua.Heartbeat]
}

func init() {
	construct.Fair = func(r *mutex.Registry) construct.Mutexes { return newManager(r) }
}

// Mutex implements construct.Mutexes.
func (m *manager) Mutex(name string, st *settings.Lock) any { return m.newMutex(name, st) }

// newManager makes the manager of one client. The client has one registry for all its mutexes.
func newManager(b *mutex.Registry) *manager {
	waiters := waitqueue.NewWaiterSet(b.Session, session.FairWaiters, key.ClientPrefix+b.Session.ID,
		func(ctx context.Context, rdb lua.Redis, batch []lua.Heartbeat, take bool) ([]lua.HeartbeatReply, error) {
			return lua.Heartbeats(ctx, rdb, b.Session.FenceRetention, key.ClientPrefix, take, batch)
		})
	return &manager{session: b.Session, registry: b, waiters: waiters}
}

// Waiting returns how many goroutines of the client wait, or are about to.
func (m *manager) Waiting() int { return m.waiters.Len() }
