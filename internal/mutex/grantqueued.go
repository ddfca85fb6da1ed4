package mutex

import (
	"context"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lua"
)

// FairKeys returns the keys of the fair mutex of a name.
func FairKeys(k key.Mutex) lua.FairKeys {
	return lua.FairKeys{Lock: k.Lock, Fence: k.Fence, Queue: k.Queue, Alive: k.Alive}
}

// GrantQueued gives a free lock to the first waiter in the queue of the fair mutex of the name, so
// that a plain mutex does not get ahead of it. It sends the command with which a fair waiter
// leaves, for an acquisition that does not exist. If that fails, the next heartbeat of a waiter
// does the same.
func (w *Request) GrantQueued(ctx context.Context, op string) {
	ctx, cancel := context.WithTimeout(ctx, w.Session.AttemptTime(w.Settings.AttemptTimeout()))
	defer cancel()
	grantFirstWaiter(ctx, w.Session, w.Keys, w.NewOperation(op, false))
}

// ServeQueue gives the lock, if it is free, to the first waiter in the queue of the fair mutex, after
// an operator removed a waiter. If that fails, the next heartbeat of a waiter does the same.
func (n *Core) ServeQueue(ctx context.Context) {
	grantFirstWaiter(ctx, n.Registry.Session, n.Keys, n.operation("remove a waiter"))
}

func grantFirstWaiter(ctx context.Context, s *session.Session, k key.Mutex, call session.Operation) {
	nobody := lua.Waiter{Acquisition: s.NewAcquisitionID(), Units: 1}
	for more := true; more; {
		answer, err := session.Do(ctx, s, call, func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.ReleaseFairReply, error) {
			return lua.ReleaseFair(ctx, rdb, lua.ReleaseFairParams{
				Keys: FairKeys(k), Waiter: nobody, Channel: k.Channel,
				FenceRetention: s.FenceRetention, ClientChannels: key.ClientPrefix, Cluster: s.Cluster(),
			})
		})
		more = err == nil && answer.Value.More
	}
}
