package mutex

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// FairKeys returns the keys of the fair mutex of a name.
func FairKeys(k *key.Mutex) lua.FairKeys {
	return lua.FairKeys{Lock: k.Args.Lock, Fence: k.Args.Fence, Queue: k.Args.Queue, Alive: k.Args.Alive}
}

// GrantQueued gives a free lock to the first waiter in the queue of the fair mutex of the name, so
// that a plain mutex does not get ahead of it. It returns when Redis has answered, after the time
// of one attempt, or when ctx ends. If Redis has not answered by then, the background goes on,
// because the caller has freed the lock, and the waiter must not wait for its next heartbeat. call
// says how to send the command.
func (r *Request) GrantQueued(ctx context.Context, call session.Operation) {
	c := Core{Registry: r.Registry, Keys: r.Keys(), Settings: r.Settings}
	c.grantQueued(ctx, call, session.InFlight{})
}

// ServeQueue gives the lock, if it is free, to the first waiter in the queue of the fair mutex,
// after an operator removed a waiter.
func (c *Core) ServeQueue(ctx context.Context) {
	c.grantQueued(ctx, c.operation("remove a waiter"), session.InFlight{})
}

// grantQueued is GrantQueued. If inFlight has attempts that may still free the lock, the background
// gives the lock to the first waiter, and looks again after them. It goes on until Redis answers,
// but no longer than a heartbeat: the next heartbeat of a waiter does the same.
func (c *Core) grantQueued(ctx context.Context, call session.Operation, inFlight session.InFlight) {
	if inFlight.Any() || c.grantFirstWaiter(ctx, call) != nil {
		c.grantQueuedInBackground(call, inFlight)
	}
}

// grantQueuedInBackground is the part of grantQueued that the background does.
func (c *Core) grantQueuedInBackground(call session.Operation, inFlight session.InFlight) {
	c.Registry.Session.CleanUp(inFlight, c.Settings.Heartbeat, func(ctx context.Context) error { return c.grantFirstWaiter(ctx, call) })
}

// grantFirstWaiter sends the command with which a fair waiter leaves, for an acquisition that does
// not exist. It has the time of one attempt. It returns nil if Redis answered, also if Redis
// refused the command.
func (c *Core) grantFirstWaiter(ctx context.Context, call session.Operation) error {
	s := c.Registry.Session
	ctx, cancel := session.WithDeadlineReason(ctx, time.Now().Add(s.AttemptTime(c.Keys.Lock, call.AttemptTimeout)), "the waiters will ask")
	defer cancel()
	nobody := lua.Waiter{Acquisition: s.NewAcquisitionID(), Units: 1}
	for {
		answer, err := session.Do(ctx, s, call, func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.ReleaseFairReply, error) {
			return lua.ReleaseFair(ctx, rdb, lua.ReleaseFairParams{
				Keys: FairKeys(c.Keys), Waiter: nobody, Channel: c.Keys.Channel,
				FenceRetention: s.FenceRetention, ClientChannels: key.ClientPrefix, Cluster: s.Cluster(),
			})
		})
		switch {
		case errors.Is(err, lockerr.ErrRefused):
			return nil
		case err != nil || !answer.Value.More:
			return err
		}
	}
}
