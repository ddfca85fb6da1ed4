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
// that a plain mutex does not get ahead of it. It returns when Redis has answered, after the time of
// one attempt, or when ctx ends. If Redis has not answered by then, the background goes on, because
// the caller has freed the lock, and the waiter must not wait for its next heartbeat.
func (r *Request) GrantQueued(ctx context.Context, op string) {
	grantQueued(ctx, r.Session(), r.Keys(), r.NewOperation(op, false), r.Settings.Heartbeat, session.InFlight{})
}

// ServeQueue gives the lock, if it is free, to the first waiter in the queue of the fair mutex, after
// an operator removed a waiter.
func (c *Core) ServeQueue(ctx context.Context) {
	grantQueued(ctx, c.Registry.Session, c.Keys, c.operation("remove a waiter"), c.Settings.Heartbeat, session.InFlight{})
}

// grantQueued is GrantQueued. If inFlight has attempts that may still free the lock, the background
// gives the lock to the first waiter, and looks again after them. It goes on until Redis answers,
// but no longer than a heartbeat: the next heartbeat of a waiter does the same.
func grantQueued(ctx context.Context, s *session.Session, k *key.Mutex, call session.Operation, heartbeat time.Duration, inFlight session.InFlight) {
	if inFlight.Any() || grantOnce(ctx, s, k, call) != nil {
		grantQueuedInBackground(s, k, call, heartbeat, inFlight)
	}
}

// grantQueuedInBackground is the part of grantQueued that the background does.
func grantQueuedInBackground(s *session.Session, k *key.Mutex, call session.Operation, heartbeat time.Duration, inFlight session.InFlight) {
	s.CleanUp(inFlight, heartbeat, func(ctx context.Context) error { return grantOnce(ctx, s, k, call) })
}

// grantOnce is grantFirstWaiter with the time of one attempt.
func grantOnce(ctx context.Context, s *session.Session, k *key.Mutex, call session.Operation) error {
	ctx, cancel := session.WithDeadlineReason(ctx, time.Now().Add(s.AttemptTime(k.Lock, call.AttemptTimeout)), "the waiters will ask")
	defer cancel()
	return grantFirstWaiter(ctx, s, k, call)
}

// grantFirstWaiter sends the command with which a fair waiter leaves, for an acquisition that does
// not exist. It returns nil if Redis answered, also if Redis refused the command.
func grantFirstWaiter(ctx context.Context, s *session.Session, k *key.Mutex, call session.Operation) error {
	nobody := lua.Waiter{Acquisition: s.NewAcquisitionID(), Units: 1}
	for {
		answer, err := session.Do(ctx, s, call, func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.ReleaseFairReply, error) {
			return lua.ReleaseFair(ctx, rdb, lua.ReleaseFairParams{
				Keys: FairKeys(k), Waiter: nobody, Channel: k.Channel,
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
