package fair

import (
	"context"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lua"
)

// Family is what the fair mutexes of one client share. Users have it inside their redlatch.Client.
type Family struct {
	session  *session.Session
	registry *mutex.Registry
	waiters  *queue.WaiterSet[lua.Beat]
}

// NewFamily makes the family of one client. The client has one registry for all its mutexes.
func NewFamily(b *mutex.Registry) *Family {
	f := &Family{session: b.Session, registry: b}
	f.waiters = queue.NewWaiterSet(b.Session, session.FairWaiters, key.ClientPrefix+b.Session.ID,
		func(ctx context.Context, rdb lua.Redis, batch []lua.Beat) ([]lua.BeatReply, error) {
			return f.heartbeats(ctx, rdb, batch, false)
		})
	return f
}

func (f *Family) heartbeats(ctx context.Context, rdb lua.Redis, batch []lua.Beat, take bool) ([]lua.BeatReply, error) {
	return lua.Beats(ctx, rdb, f.session.FenceRetention, key.ClientPrefix, take, batch)
}

// Waiting returns how many goroutines of the client wait, or are about to.
func (f *Family) Waiting() int { return f.waiters.Len() }
