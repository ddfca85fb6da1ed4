package rivals_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/workload"
)

// https://github.com/go-redsync/redsync#usage: one pool for one Redis, as on that page.
// https://pkg.go.dev/github.com/go-redsync/redsync/v4: Lock ("In case it returns an error on
// failure, you may retry to acquire the lock by calling this method again"), ExtendContext, Until,
// and the meaning of the errors.
var redsyncs = library{
	name:   "redsync",
	module: "github.com/go-redsync/redsync/v4",
	open: func(_ testing.TB, addr string, size scale) client {
		rdb := connect(addr, size)
		return &redsyncClient{rdb: rdb, rs: redsync.New(goredis.NewPool(rdb)), size: size, loops: newLoops()}
	},
	key:     func(name string) string { return name },
	meaning: redsyncMeaning,
	window:  true, releases: true,
}

type redsyncClient struct {
	rdb   *redis.Client
	rs    *redsync.Redsync
	size  scale
	loops loops
}

func (c *redsyncClient) lock(name string) workload.Lock { return redsyncLock{c, name} }

func (c *redsyncClient) close() {
	_ = c.rdb.Close()
	c.loops.end()
}

type redsyncLock struct {
	*redsyncClient
	name string
}

func (l redsyncLock) Lock(ctx context.Context) (workload.Hold, error) {
	for {
		m := l.rs.NewMutex(l.name, redsync.WithExpiry(l.size.lease))
		err := m.LockContext(ctx)
		if err == nil {
			return l.held(m), nil
		}
		if ctx.Err() != nil || !redsyncTaken(err) && !errors.Is(err, redsync.ErrFailed) {
			return nil, err
		}
	}
}

func (l redsyncLock) TryLock(ctx context.Context) (workload.Hold, error) {
	m := l.rs.NewMutex(l.name, redsync.WithExpiry(l.size.lease))
	if err := m.TryLockContext(ctx); err != nil {
		return nil, err
	}
	return l.held(m), nil
}

func (l redsyncLock) held(m *redsync.Mutex) workload.Hold {
	h := &redsyncHold{m: m}
	h.until = m.Until
	h.gone = redsyncGone
	h.extend = func(ctx context.Context) error {
		ok, err := m.ExtendContext(ctx)
		if !ok && err == nil {
			return redsync.ErrExtendFailed
		}
		return err
	}
	h.start(l.loops, l.size.lease/3)
	return h
}

type redsyncHold struct {
	byHand
	m *redsync.Mutex
}

func (h *redsyncHold) ID() string { return h.m.Value() }

func (h *redsyncHold) Unlock(ctx context.Context) error {
	h.stop()
	ok, err := h.m.UnlockContext(ctx)
	if !ok && err == nil {
		return fmt.Errorf("not unlocked")
	}
	return err
}

func redsyncTaken(err error) bool {
	var taken *redsync.ErrTaken
	return errors.As(err, &taken)
}

func redsyncGone(err error) bool {
	return redsyncTaken(err) || errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.Is(err, redsync.ErrExtendFailed)
}

func redsyncMeaning(kind history.Kind, err error) (history.Outcome, bool) {
	switch {
	case kind == history.Release && redsyncGone(err):
		return history.Lost, false
	case redsyncTaken(err):
		return history.Refused, false
	case errors.Is(err, redsync.ErrFailed): // it does not say why, only that the caller has nothing
		return history.Nothing, false
	}
	return history.Unknown, false
}
