// Nested: a call chain that locks the same name three times, at three levels. The context carries
// the holds, so no function has to know which locks its callers have. Goroutines that share the
// context of a lock exclude each other from every other lock.
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

	fmt.Println("One call chain locks one name three times. Each lock is another hold of the same grant.")
	shop := &shop{locks: locks}
	return shop.checkout(context.Background(), 42)
}

type shop struct{ locks *redlatch.Client }

func (s *shop) order(id int) string { return fmt.Sprintf("nested:order:%d", id) }

// checkout is the entry point, which a request would call.
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
		if err := s.count(ctx, id); err != nil {
			return err
		}
		return s.stranger(ctx, id)
	})
}

// count adds up what three goroutines take from the stock. They share the context of the order's
// lock, and exclude each other from the lock of the stock.
func (s *shop) count(ctx context.Context, id int) error {
	const items = 3
	taken := 0
	errs := make(chan error, items)
	for range items {
		go func() {
			errs <- s.locks.Mutex("nested:stock").Do(ctx, func(context.Context) error {
				taken++
				return nil
			})
		}()
	}
	for range items {
		if err := <-errs; err != nil {
			return err
		}
	}
	s.show(ctx, fmt.Sprintf("      %d items counted", taken), id)
	return nil
}

// stranger is work that must not share the locks of its caller. It waits for them, although it runs
// in the same process.
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
