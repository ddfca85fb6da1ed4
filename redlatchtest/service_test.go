package redlatchtest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// Shop charges orders. No two processes charge one order at the same time.
type Shop struct {
	locks *redlatch.Client
	pay   func(ctx context.Context, order string) error
}

var (
	ErrBusy     = errors.New("the order is being charged")
	ErrTryLater = errors.New("the order cannot be charged now")
	ErrUnclear  = errors.New("somebody has to look at the order")
)

func (s *Shop) Charge(ctx context.Context, order string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // for the wait and the payment
	defer cancel()
	err := s.locks.Mutex("orders:"+order).Do(ctx, func(ctx context.Context) error {
		return s.pay(ctx, order)
	})
	switch {
	case errors.Is(err, redlatch.ErrLost): // while the order was being paid
		return ErrUnclear
	case errors.Is(err, redlatch.ErrNotAcquired):
		return ErrBusy
	case errors.Is(err, redlatch.ErrUnavailable), errors.Is(err, redlatch.ErrIndeterminate):
		return ErrTryLater
	}
	return err
}

func TestCharge(t *testing.T) {
	tests := []struct {
		name   string
		before func(server *redlatchtest.Server) // happens before the call
		during func(server *redlatchtest.Server) // happens while the order is paid
		want   error
	}{
		{
			name: "free",
		},
		{
			name:   "busy",
			before: func(server *redlatchtest.Server) { server.HoldElsewhere("orders:42") },
			want:   ErrBusy,
		},
		{
			name: "waiting",
			before: func(server *redlatchtest.Server) {
				release := server.HoldElsewhere("orders:42")
				time.AfterFunc(2*time.Second, release)
			},
		},
		{
			name:   "lost in the middle",
			during: func(server *redlatchtest.Server) { server.Lose("orders:42") },
			want:   ErrUnclear,
		},
		{
			name:   "Redis is down",
			before: func(server *redlatchtest.Server) { server.Down() },
			want:   ErrTryLater,
		},
		{
			name:   "Redis goes down",
			during: func(server *redlatchtest.Server) { server.Down() },
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := redlatchtest.New(t)
				shop := &Shop{locks: server.Client, pay: func(ctx context.Context, order string) error {
					if test.during != nil {
						test.during(server)
					}
					select {
					case <-time.After(time.Second):
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}}
				if test.before != nil {
					test.before(server)
				}
				if err := shop.Charge(t.Context(), "42"); !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
			})
		})
	}
}

func TestOneOrderIsPaidByOneProcessAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redlatchtest.New(t)
		var paying atomic.Int32
		pay := func(context.Context, string) error {
			if paying.Add(1) > 1 {
				t.Error("two processes pay")
			}
			time.Sleep(100 * time.Millisecond)
			paying.Add(-1)
			return nil
		}
		var processes sync.WaitGroup
		for range 8 {
			shop := &Shop{locks: server.NewClient(), pay: pay}
			processes.Go(func() {
				if err := shop.Charge(t.Context(), "42"); err != nil {
					t.Error(err)
				}
			})
		}
		processes.Wait()
	})
}
