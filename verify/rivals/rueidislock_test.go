package rivals_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/workload"
)

// https://github.com/redis/rueidis/tree/main/rueidislock: KeyMajority 1 "if you have only one Redis
// instance", NoLoopTracking "if all your Redis are >= 7.0.5", and defaults for the rest. The
// context that it returns ends at a loss.
var rueidislocks = library{
	name:   "rueidislock",
	module: "github.com/redis/rueidis",
	open: func(t testing.TB, addr string, size scale) client {
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
			KeyMajority:    1,
			NoLoopTracking: true,
			KeyValidity:    size.lease,
		})
		require.NoError(t, err)
		return rueidisClient{locker}
	},
	key:     func(name string) string { return "rueidislock:0:" + name },
	meaning: rueidisMeaning,
	signal:  true,
}

type rueidisClient struct{ locker rueidislock.Locker }

func (c rueidisClient) lock(name string) workload.Lock { return rueidisLock{c.locker, name} }
func (c rueidisClient) close()                         { c.locker.Close() }

type rueidisLock struct {
	locker rueidislock.Locker
	name   string
}

// Lock lets ctx bound only the wait. The hold of WithContext ends with its context, but in the rows
// that use Lock the end of the wait must not end the hold.
func (l rueidisLock) Lock(ctx context.Context) (workload.Hold, error) {
	work, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	h, err := rueidisHeld(l.locker.WithContext(work, l.name))
	if !stop() || err != nil {
		end()
	}
	return h, err
}

// LockWithin is WithContext with the unchanged context, as its users write it.
func (l rueidisLock) LockWithin(ctx context.Context) (workload.Hold, error) {
	return rueidisHeld(l.locker.WithContext(ctx, l.name))
}

func (l rueidisLock) TryLock(ctx context.Context) (workload.Hold, error) {
	return rueidisHeld(l.locker.TryWithContext(context.WithoutCancel(ctx), l.name))
}

var rueidisGrants atomic.Int64

func rueidisHeld(ctx context.Context, cancel context.CancelFunc, err error) (workload.Hold, error) {
	if err != nil {
		return nil, err
	}
	return rueidisHold{ctx, cancel, fmt.Sprint(rueidisGrants.Add(1))}, nil
}

type rueidisHold struct {
	ctx    context.Context
	cancel context.CancelFunc
	id     string
}

func (h rueidisHold) ID() string                   { return h.id }
func (h rueidisHold) Fence() int64                 { return 0 }
func (h rueidisHold) Lost() <-chan struct{}        { return h.ctx.Done() }
func (h rueidisHold) TrustedUntil() time.Time      { return time.Now().Add(forEver) }
func (h rueidisHold) Unlock(context.Context) error { h.cancel(); return nil }

func rueidisMeaning(_ history.Kind, err error) (history.Outcome, bool) {
	if errors.Is(err, rueidislock.ErrNotLocked) {
		return history.Refused, false
	}
	return history.Unknown, false
}
