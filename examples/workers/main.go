// Workers: processes that come, go and crash share a pool of three places. Each process runs its
// jobs in an errgroup, and each job takes a place. One in a few jobs is large and takes two. No
// more than three places are ever in use, and the places of a process that is killed come back.
//
//	go run ./examples/workers
//	REDIS_URL=redis://localhost:6379 go run ./examples/workers
package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/server"
	"github.com/redlatch/redlatch/semaphore"
)

const (
	pool   = "workers:render"
	places = 3
	jobs   = 4               // for each process, all at once
	lease  = 2 * time.Second // short, so that the example is short; the default is 30 s
)

func main() {
	log.SetFlags(0)
	var err error
	if name := os.Getenv("WORKERS_NAME"); name != "" {
		err = work(name, os.Getenv("WORKERS_URL"))
	} else {
		err = play()
	}
	if err != nil {
		log.Fatal(err)
	}
}

// work is a process. It runs each of its jobs in a goroutine, and the semaphore lets some of them
// run.
func work(name, url string) error {
	rdb, err := server.Connect(url)
	if err != nil {
		return err
	}
	defer rdb.Close()
	locks, err := redlatch.New(rdb, redlatch.WithLease(lease), redlatch.WithHeartbeat(lease), redlatch.WithDescription("process "+name))
	if err != nil {
		return err
	}
	defer locks.Close(context.Background())

	render := locks.Semaphore(pool, places)
	group, ctx := errgroup.WithContext(context.Background())
	for job := 1; job <= jobs; job++ {
		size := 1
		if job == jobs {
			size = 2
		}
		group.Go(func() error {
			return render.Do(ctx, size, func(ctx context.Context) error {
				note("begins", job, size)
				defer note("ends", job, size)
				select {
				case <-time.After(400 * time.Millisecond): // the work
					return nil
				case <-ctx.Done(): // the permit was lost, or another job failed
					return context.Cause(ctx)
				}
			})
		})
	}
	return group.Wait()
}

// note prints when something happened, so that the example can add it up at the end. It does not
// read lines of several processes in the order in which they were written.
func note(verb string, job, size int) {
	fmt.Printf("%s %d %d %d\n", verb, job, size, time.Now().UnixNano())
}

// play starts processes, kills one at work, and shows the pool while it runs.
func play() error {
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
	fmt.Printf("Each line shows the pool of %d places: # is in use, . is free. Then come the jobs that wait.\n", places)
	fmt.Printf("Job %d of each process takes two places, and every other job takes one.\n", jobs)
	s := &story{start: time.Now(), render: locks.Semaphore(pool, places), procs: map[string]*exec.Cmd{}, busy: map[string]int{}}
	for _, name := range []string{"A", "B", "C"} {
		if err := s.launch(name, url); err != nil {
			return err
		}
	}
	time.Sleep(time.Second)
	if err := s.launch("D", url); err != nil { // a process that comes later
		return err
	}
	s.lines.Wait()
	return s.end()
}

type story struct {
	start  time.Time
	render *semaphore.Semaphore
	lines  sync.WaitGroup

	mu     sync.Mutex
	procs  map[string]*exec.Cmd
	busy   map[string]int // places that its jobs use, by process
	events []event
	done   int
	killed string
}

// event is a change of the number of places in use.
type event struct {
	at   int64
	size int // negative: released
}

// launch starts a process and follows its output.
func (s *story) launch(name, url string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "WORKERS_NAME="+name, "WORKERS_URL="+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.mu.Lock()
	s.procs[name] = cmd
	s.say("process %s comes, with %d jobs", name, jobs)
	s.mu.Unlock()
	s.lines.Go(func() {
		for scan := bufio.NewScanner(out); scan.Scan(); {
			s.follow(name, scan.Text())
		}
	})
	return nil
}

// follow follows a job. It kills a process that begins a job after the fourth job has ended.
func (s *story) follow(name, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var verb string
	var job, size int
	var at int64
	if _, err := fmt.Sscan(line, &verb, &job, &size, &at); err != nil || name == s.killed {
		return // output from before it was killed
	}
	large := ""
	if verb == "begins" && size == 2 {
		large = ", with two places"
	}
	s.say("%s %s job %d%s", name, verb, job, large)
	if verb == "ends" {
		size = -size
		s.done++
	}
	s.busy[name] += size
	s.events = append(s.events, event{at, size})
	if s.done >= 4 && s.killed == "" && size > 0 {
		s.killed = name
		_ = s.procs[name].Process.Kill()
		s.events = append(s.events, event{time.Now().UnixNano(), -s.busy[name]})
		s.say("%s is killed with -9: its places come back with the end of their lease of %v", name, lease)
	}
}

// say shows the pool, as Redis has it, and what happened.
func (s *story) say(format string, args ...any) {
	info, err := s.render.Inspect(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	bar := strings.Repeat("#", info.InUse) + strings.Repeat(".", max(places-info.InUse, 0))
	fmt.Printf("%5.2fs  [%s] %2d waiting  %s\n", time.Since(s.start).Seconds(), bar, info.Waiting, fmt.Sprintf(format, args...))
}

func (s *story) end() error {
	for name, cmd := range s.procs {
		if err := cmd.Wait(); err != nil && name != s.killed {
			return fmt.Errorf("process %s: %w", name, err)
		}
	}
	slices.SortFunc(s.events, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), a.size-b.size) })
	used, most := 0, 0
	for _, e := range s.events {
		used += e.size
		most = max(most, used)
	}
	if s.killed == "" || most > places || s.done < 3*jobs {
		return fmt.Errorf("the story went wrong: killed %q, %d in use at most, %d jobs done", s.killed, most, s.done)
	}
	fmt.Printf("Done: %d jobs, never more than %d places in use.\n", s.done, most)
	return nil
}
