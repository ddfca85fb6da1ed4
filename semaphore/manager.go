package semaphore

import (
	"context"
	"sync"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/construct"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/waitqueue"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// manager is what the semaphores of one client share: the permits that it has, and its waiters.
// Users have it inside their redlatch.Client.
type manager struct {
	session *session.Session
	keys    *key.Cache[key.Semaphore]
	waiters *waitqueue.WaiterSet[lua.PermitHeartbeat]

	mu   sync.Mutex
	held map[string]heldPermit // by acquisition; includes lost ones that nobody asked about yet

	lastStamp lua.Time // of a resize; guarded by mu
}

type heldPermit struct {
	*acquisition.Acquisition
	units int
}

func init() {
	construct.Semaphore = func(s *session.Session) construct.Semaphores { return newManager(s) }
}

// Semaphore implements construct.Semaphores.
func (m *manager) Semaphore(name string, limit int, st *settings.Lock) any {
	return m.newSemaphore(name, limit, st)
}

// newManager makes the manager of one client.
func newManager(s *session.Session) *manager {
	f := &manager{session: s, keys: key.NewCache(key.ForSemaphore), held: make(map[string]heldPermit)}
	f.waiters = waitqueue.NewWaiterSet(s, session.PermitWaiters, key.ClientPrefix+s.ID,
		func(ctx context.Context, rdb lua.Redis, batch []lua.PermitHeartbeat, take bool) ([]lua.HeartbeatReply, error) {
			return lua.PermitHeartbeats(ctx, rdb, s.FenceRetention, key.ClientPrefix, take, batch)
		})
	s.SetRenewer(session.Permits, f.renew)
	return f
}

// Len returns how many permits the client has, plus how many of its goroutines wait for some.
func (m *manager) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.held) + m.waiters.Len()
}

// Held returns all permits that the client has.
func (m *manager) Held() []*acquisition.Acquisition {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*acquisition.Acquisition, 0, len(m.held))
	for _, p := range m.held {
		if p.Acquisition != nil {
			all = append(all, p.Acquisition)
		}
	}
	return all
}

// addPermit notes a permit. It is called with the units, before the watchdog asks for them, and
// again as soon as the client has the acquisition.
func (m *manager) addPermit(id string, p heldPermit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held[id] = p
}

// nextStamp returns the stamp of a new resize of a semaphore. It is the server's clock, as far as
// the client knows it, but later than every earlier stamp of this client, and later than after.
func (m *manager) nextStamp(name string, after lua.Time) lua.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastStamp = max(m.session.Now(name), m.lastStamp+1, after+1)
	return m.lastStamp
}

func (m *manager) removePermit(a *acquisition.Acquisition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, a.ID)
}

// renew extends permits for the watchdog. It sends once.
func (m *manager) renew(ctx context.Context, rdb lua.Redis, requests []watchdog.Renewal) ([]watchdog.Result, error) {
	batch := make([]lua.PermitRenewal, len(requests))
	m.mu.Lock()
	for i, r := range requests {
		k := key.ForSemaphore(r.Key)
		batch[i] = lua.PermitRenewal{Permits: k.Permits, Holders: k.Holders, Acquisition: r.ID, Units: m.held[r.ID].units, Lease: r.Lease}
	}
	m.mu.Unlock()
	result, err := lua.RenewPermits(ctx, rdb, m.session.FenceRetention, batch)
	if err != nil {
		return nil, err
	}
	return session.RenewAnswers(result)
}
