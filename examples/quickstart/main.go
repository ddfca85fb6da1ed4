// Quickstart: three worker processes share one lock. They take turns and re-enter it. If one of
// them is killed while it holds the lock, another takes over.
//
//	go run ./examples/quickstart
//	REDIS_URL=redis://localhost:6379 go run ./examples/quickstart
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/server"
)

const (
	lockName = "quickstart:report"
	lease    = 2 * time.Second // short, so that the example is short; the default is 30 s
	turns    = 3               // for each worker
)

func main() {
	log.SetFlags(0)
	var err error
	if name := os.Getenv("QUICKSTART_WORKER"); name != "" {
		err = work(name, os.Getenv("QUICKSTART_URL"))
	} else {
		err = play()
	}
	if err != nil {
		log.Fatal(err)
	}
}

// work is a worker process, which takes some turns under the lock.
func work(name, url string) error {
	rdb, err := server.Connect(url)
	if err != nil {
		return err
	}
	defer rdb.Close()
	locks, err := redlatch.New(rdb, redlatch.WithLease(lease), redlatch.WithDescription("worker "+name))
	if err != nil {
		return err
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	report := locks.Mutex(lockName)
	for range turns {
		hold, err := report.Lock(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("has the lock, fence %d\n", hold.Fence())
		if err := addPage(hold.Context(), locks); err != nil {
			return err
		}
		time.Sleep(300 * time.Millisecond) // the work
		fmt.Println("unlocks")
		if err := hold.Unlock(ctx); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// addPage locks the same name again, which the owner in ctx may do.
func addPage(ctx context.Context, locks *redlatch.Client) error {
	return locks.Mutex(lockName).Do(ctx, func(context.Context) error {
		fmt.Println("  locks it again further down its call chain, and does not wait for itself")
		return nil
	})
}

// play starts the workers, kills one that has the lock, and prints what happens.
func play() error {
	url, stop, err := server.URL()
	if err != nil {
		return err
	}
	defer stop()

	fmt.Println("Three workers take turns under one lock. One of them is killed while it has it.")
	s := &story{start: time.Now(), procs: map[string]*exec.Cmd{}}
	var lines sync.WaitGroup
	for _, name := range []string{"A", "B", "C"} {
		if err := s.launch(name, url, &lines); err != nil {
			return err
		}
	}
	lines.Wait()
	return s.end()
}

type story struct {
	start time.Time

	mu     sync.Mutex
	procs  map[string]*exec.Cmd
	grants int
	killed string
	at     time.Time // of the kill; zero once another worker has taken over the lock
}

// launch starts a worker and prints its output.
func (s *story) launch(name, url string, lines *sync.WaitGroup) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "QUICKSTART_WORKER="+name, "QUICKSTART_URL="+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.procs[name] = cmd
	s.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	lines.Go(func() {
		for scan := bufio.NewScanner(out); scan.Scan(); {
			s.follow(name, scan.Text())
		}
	})
	return nil
}

// follow prints a worker's line. At the fourth grant it kills the worker.
func (s *story) follow(name, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say(name, line)
	if !strings.HasPrefix(line, "has the lock") {
		return
	}
	s.grants++
	switch {
	case s.grants == 4:
		s.killed, s.at = name, time.Now()
		_ = s.procs[name].Process.Kill()
		s.say(name, "is killed with -9: it unlocks nothing. Redis keeps its lock until the lease of "+lease.String()+" ends")
	case !s.at.IsZero():
		s.say(name, fmt.Sprintf("took over %v after the kill, with a larger fence; nobody cleaned up", time.Since(s.at).Round(100*time.Millisecond)))
		s.at = time.Time{}
	}
}

func (s *story) say(name, line string) {
	fmt.Printf("%5.2fs  worker %s  %s\n", time.Since(s.start).Seconds(), name, line)
}

func (s *story) end() error {
	for name, cmd := range s.procs {
		if err := cmd.Wait(); err != nil && name != s.killed {
			return fmt.Errorf("worker %s: %w", name, err)
		}
	}
	if s.killed == "" || !s.at.IsZero() {
		return fmt.Errorf("the story went wrong: killed %q, grants %d", s.killed, s.grants)
	}
	fmt.Printf("Done: %d turns, one after the other. Worker %s was killed in one of them.\n", s.grants, s.killed)
	return nil
}
