// Nested: a call chain that locks the same name three deep. The owner is set
// once, at the edge of the program; nothing below it has to know who locked
// what.
//
//	go run ./examples/nested
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/server"
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	url, stop, err := server.URL()
	if err != nil {
		return err
	}
	defer stop()
	rdb, err := server.Connect(url)
	if err != nil {
		return err
	}
	defer rdb.Close()
	locks, err := redlatch.New(rdb)
	if err != nil {
		return err
	}
	defer locks.Close(context.Background())

	shop := &shop{locks: locks}
	return shop.handle(context.Background(), 42)
}

type shop struct{ locks *redlatch.Client }

func (s *shop) order(id int) string { return fmt.Sprintf("nested:order:%d", id) }

// handle is the edge: what a middleware would do for each request.
func (s *shop) handle(ctx context.Context, id int) error {
	ctx = redlatch.WithOwner(ctx)
	return s.checkout(ctx, id)
}

func (s *shop) checkout(ctx context.Context, id int) error {
	return s.locks.Mutex(s.order(id)).Do(ctx, func(ctx context.Context) error {
		s.show(ctx, "checkout", id)
		return s.charge(ctx, id)
	})
}

func (s *shop) charge(ctx context.Context, id int) error {
	return s.locks.Mutex(s.order(id)).Do(ctx, func(ctx context.Context) error {
		s.show(ctx, "  charge", id)
		if err := s.reserve(ctx, id); err != nil {
			return err
		}
		s.show(ctx, "  charge, after reserve", id)
		return nil
	})
}

func (s *shop) reserve(ctx context.Context, id int) error {
	return s.locks.Mutex(s.order(id)).Do(ctx, func(ctx context.Context) error {
		s.show(ctx, "    reserve", id)
		return s.stranger(ctx, id)
	})
}

// stranger is work that must not share the locks of its starter: another owner
// waits, in this very process.
func (s *shop) stranger(ctx context.Context, id int) error {
	ctx, cancel := context.WithTimeout(redlatch.WithOwner(ctx), 100*time.Millisecond)
	defer cancel()
	_, err := s.locks.Mutex(s.order(id)).Lock(ctx)
	var busy *redlatch.NotAcquiredError
	if !errors.As(err, &busy) {
		return fmt.Errorf("another owner got the lock: %w", err)
	}
	fmt.Println("      another owner waits in vain:", busy)
	return nil
}

func (s *shop) show(ctx context.Context, who string, id int) {
	info, err := s.locks.Mutex(s.order(id)).Inspect(ctx)
	if err != nil {
		log.Println(err)
		return
	}
	fmt.Printf("%-24s holds %d, fence %d\n", who, info.Holds, info.Fence)
}
