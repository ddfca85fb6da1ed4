// Command recipes shows what goes wrong with the locks on Redis that tutorials teach. Each recipe
// is one file: the lock as tutorials teach it, its flaws by name, and a program that makes each
// flaw happen on a real server. The same run then does the same to redlatch. The command fails if a
// flaw does not happen, or happens to redlatch.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/benchmarks/server"
)

// recipe is one way to make a lock.
type recipe struct {
	name  string
	flaws []flaw
}

// flaw is something that goes wrong. Both functions report whether it happened, and what they saw.
type flaw struct {
	name   string
	taught func(ctx context.Context, s *stage) (happened bool, seen string, err error)
	ours   func(ctx context.Context, s *stage) (happened bool, seen string, err error)
}

var recipes = []recipe{setnxThenExpire, compareInTheClient, withoutRenewal, timestamps, watchedTimestamps, pollStorm}

func main() {
	if err := show(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func show() error {
	on, err := server.Redis(1)
	if on != nil {
		defer on.Stop()
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var wrong []error
	for _, r := range recipes {
		fmt.Printf("\n%s\n", r.name)
		for _, f := range r.flaws {
			fmt.Printf("  %s\n", f.name)
			for _, who := range []string{"the recipe", "redlatch"} {
				do := f.taught
				if who == "redlatch" {
					do = f.ours
				}
				happened, seen, err := play(ctx, on.Addrs[0], do)
				if err != nil {
					return fmt.Errorf("%s: %s: %s: %w", r.name, f.name, who, err)
				}
				word := "does not happen"
				if happened {
					word = "HAPPENS"
				}
				fmt.Printf("    %-10s  %-15s  %s\n", who, word, seen)
				if happened != (who == "the recipe") {
					wrong = append(wrong, fmt.Errorf("%s: %s: %s: not as it is said to be", r.name, f.name, who))
				}
			}
		}
	}
	return errors.Join(wrong...)
}

// play shows one flaw on an empty server.
func play(ctx context.Context, addr string, do func(context.Context, *stage) (bool, string, error)) (bool, string, error) {
	s := &stage{addr: addr}
	defer s.end()
	if err := s.client().FlushAll(ctx).Err(); err != nil {
		return false, "", err
	}
	return do(ctx, s)
}

// stage is the server on which a flaw is shown, with the clients.
type stage struct {
	addr string
	ends []func()
}

func (s *stage) end() {
	for i := len(s.ends) - 1; i >= 0; i-- {
		s.ends[i]()
	}
}

// client is a client of one process, with hooks.
func (s *stage) client(hooks ...redis.Hook) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1})
	for _, h := range hooks {
		rdb.AddHook(h)
	}
	s.ends = append(s.ends, func() { _ = rdb.Close() })
	return rdb
}

// locks is redlatch in one process. Its lease is short, so that nobody has to wait for its end for
// long.
func (s *stage) locks(lease time.Duration, hooks ...redis.Hook) (*redlatch.Client, error) {
	locks, err := redlatch.New(s.client(hooks...), redlatch.WithLease(lease))
	if err == nil {
		s.ends = append(s.ends, func() {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_ = locks.Close(ctx)
		})
	}
	return locks, err
}

var errCrashed = errors.New("the process has crashed")

// crash is a process that crashes after the given number of commands. It never sends the next ones.
type crash struct {
	passive
	after int
}

func (c *crash) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hello" || cmd.Name() == "client" { // commands of the connection
			return next(ctx, cmd)
		}
		if c.after == 0 {
			cmd.SetErr(errCrashed)
			return errCrashed
		}
		c.after--
		return next(ctx, cmd)
	}
}

// stall is a process that stops before one kind of command, as for a garbage collection.
type stall struct {
	passive
	before string
	during func() // what happens meanwhile
}

func (s *stall) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == s.before && s.during != nil {
			during := s.during
			s.during = nil
			during()
		}
		return next(ctx, cmd)
	}
}

// counter counts the commands of one process.
type counter struct {
	passive
	sent atomic.Int64
}

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.sent.Add(1)
		return next(ctx, cmd)
	}
}

// passive is a hook that changes nothing.
type passive struct{}

func (passive) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (passive) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (passive) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
