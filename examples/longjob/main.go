// Longjob: three worker processes queue for a job of some seconds, in order of arrival. Each prints
// its place while it waits, and its progress while it works. The example kills the first worker in
// the middle of its job. The next one takes over, in order.
//
//	go run ./examples/longjob
//	REDIS_URL=redis://localhost:6379 go run ./examples/longjob Ann      # in three shells, with three names
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/server"
	"github.com/redlatch/redlatch/lock"
)

const (
	lockName = "longjob:nightly"
	lease    = 2 * time.Second // short, so that the example is short; the default is 30 s
	step     = 500 * time.Millisecond
	steps    = 4
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	if url := os.Getenv("LONGJOB_URL"); url != "" {
		return work(os.Getenv("LONGJOB_WORKER"), url)
	}
	if len(os.Args) > 1 {
		url := os.Getenv("REDIS_URL")
		if url == "" {
			return errors.New("a worker in a shell of its own needs a server that others reach: set REDIS_URL")
		}
		return work(os.Args[1], url)
	}
	return play()
}

// work is a worker process. It waits for the lock, and does the job once.
func work(name, url string) error {
	rdb, err := server.Connect(url)
	if err != nil {
		return err
	}
	defer rdb.Close()
	locks, err := redlatch.New(rdb, redlatch.WithLease(lease), redlatch.WithHeartbeat(time.Second),
		redlatch.WithDescription(name), redlatch.WithWaitCallback(func(w lock.Waiting) {
			fmt.Printf("waits: %d of %d; %s has it since %s\n", w.Position, w.Length, w.Description, w.Since.Format(time.TimeOnly))
		}))
	if err != nil {
		return err
	}
	ctx := context.Background()
	defer locks.Close(ctx)
	return locks.FairMutex(lockName).Do(ctx, job)
}

// job ends early if the lock is lost, because somebody else does the job then.
func job(ctx context.Context) error {
	fmt.Println("begins")
	for i := range steps {
		select {
		case <-time.After(step):
			fmt.Printf("works: %d %%\n", 100*(i+1)/steps)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	fmt.Println("is done")
	return nil
}

// play starts the workers, kills the first at its job, and prints what happens.
func play() error {
	url, stop, err := server.URL()
	if err != nil {
		return err
	}
	defer stop()
	fmt.Println("Ann, Bob and Cid want to do a job, one after the other. The queue is in Redis.")
	s := &story{start: time.Now(), procs: map[string]*exec.Cmd{}}
	var lines sync.WaitGroup
	for _, name := range []string{"Ann", "Bob", "Cid"} {
		stands, err := s.launch(name, url, &lines)
		if err != nil {
			return err
		}
		<-stands // so that they queue in the order of the names
	}
	lines.Wait()
	return s.end()
}

type story struct {
	start time.Time

	mu     sync.Mutex
	procs  map[string]*exec.Cmd
	order  []string // the workers in the order in which they began
	killed string
	at     time.Time // of the kill; zero once another worker has taken over the job
}

// launch starts a worker and prints its output. stands is closed when the worker has printed
// something: it works or has its place.
func (s *story) launch(name, url string, lines *sync.WaitGroup) (stands chan struct{}, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "LONGJOB_WORKER="+name, "LONGJOB_URL="+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.procs[name] = cmd
	s.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stands = make(chan struct{})
	said := sync.OnceFunc(func() { close(stands) })
	lines.Go(func() {
		defer said()
		for scan := bufio.NewScanner(out); scan.Scan(); {
			s.follow(name, scan.Text())
			said()
		}
	})
	return stands, nil
}

// follow prints a worker's line. It kills the first worker half-way.
func (s *story) follow(name, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say(name, line)
	switch {
	case line == "begins":
		s.order = append(s.order, name)
		if !s.at.IsZero() {
			s.say(name, fmt.Sprintf("was next in the queue, and took over %v after the kill; nobody cleaned up", time.Since(s.at).Round(100*time.Millisecond)))
			s.at = time.Time{}
		}
	case s.killed == "" && len(s.procs) == 3 && strings.Contains(line, "50 %"), s.killed == "" && strings.Contains(line, "75 %"):
		s.killed, s.at = name, time.Now()
		_ = s.procs[name].Process.Kill()
		s.say(name, "is killed with -9: it unlocks nothing. Redis keeps its lock until the lease of "+lease.String()+" ends")
	}
}

func (s *story) say(name, line string) {
	fmt.Printf("%5.2fs  %s  %s\n", time.Since(s.start).Seconds(), name, line)
}

func (s *story) end() error {
	for name, cmd := range s.procs {
		if err := cmd.Wait(); err != nil && name != s.killed {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	order := strings.Join(s.order, ", ")
	if s.killed == "" || order != "Ann, Bob, Cid" {
		return fmt.Errorf("the story went wrong: killed %q, order %q", s.killed, order)
	}
	fmt.Printf("Done. They began in order of arrival: %s. %s was killed half-way, and the others did the job.\n", order, s.killed)
	return nil
}
