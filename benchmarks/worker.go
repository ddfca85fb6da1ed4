package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// locker is one client of a library.
type locker interface {
	// lock waits for the lock, or for a permit.
	lock(ctx context.Context, name string) (unlock func(context.Context) error, err error)
	close()
}

// work is the main function of a process that measures. It exchanges lines with the process that
// started it. It writes "ready", and then waits for the start. It writes "begin" and "end" around
// the time that counts, and then the result.
func work(c cell, in io.Reader, out io.Writer) error {
	clients := make([]locker, c.Clients)
	for i := range clients {
		var err error
		if clients[i], err = open(c); err != nil {
			return err
		}
		defer clients[i].close()
	}
	fmt.Fprintln(out, "ready")
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return fmt.Errorf("nobody said go: %w", err)
	}
	r, err := c.kind()(c, clients, out)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

// kind returns how a cell is measured.
func (c cell) kind() func(cell, []locker, io.Writer) (result, error) {
	switch {
	case c.Keep > 0:
		return keep
	case c.Once > 0:
		return once
	}
	return measure
}

// measure runs the goroutines, and counts what they do after the warm-up.
func measure(c cell, clients []locker, out io.Writer) (result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.Warm+c.Measure)
	defer cancel()
	m := &measurement{cell: c, start: time.Now()}
	workers := make([]worker, c.Goroutines)
	var all sync.WaitGroup
	for i := range workers {
		workers[i] = worker{measurement: m, client: clients[i%len(clients)], name: c.name(i)}
		all.Go(func() { workers[i].run(ctx) })
	}
	time.Sleep(c.Warm)
	fmt.Fprintln(out, "begin")
	before, start := spent(), time.Now()
	m.counts.Store(true)
	<-ctx.Done()
	m.counts.Store(false)
	r := spent().since(before)
	r.Elapsed = time.Since(start)
	fmt.Fprintln(out, "end")
	all.Wait()
	for i := range workers {
		w := &workers[i]
		if w.err != nil {
			return r, fmt.Errorf("%s: %w", c.Library, w.err)
		}
		r.Turns = append(r.Turns, len(w.waits))
		r.Waits = append(r.Waits, w.waits...)
		r.Handed = append(r.Handed, w.handed...)
		if w.unmet > 0 {
			r.Unmet = append(r.Unmet, w.unmet)
		}
	}
	return r, nil
}

func (c cell) name(i int) string {
	switch c.Names {
	case 1:
		return "bench"
	case 0:
		return fmt.Sprintf("bench:%d:%d", c.Process, i)
	}
	return "bench:" + strconv.Itoa(i%c.Names)
}

// measurement is shared by the goroutines of a process.
type measurement struct {
	cell
	start    time.Time
	counts   atomic.Bool
	unlocked atomic.Int64 // when the last Unlock was called, since start; 0: not yet
}

type worker struct {
	*measurement
	client locker
	name   string

	waits, handed []int64
	unmet         int64
	err           error
}

func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		asked := time.Now()
		unlock, err := w.client.lock(ctx, w.name)
		got := time.Now()
		if err != nil {
			if ctx.Err() == nil {
				w.err = err
			}
			w.unmet = got.Sub(asked).Microseconds()
			return
		}
		since := w.unlocked.Load()
		if w.Hold > 0 {
			time.Sleep(w.Hold)
		}
		if w.Names == 1 {
			w.unlocked.Store(int64(time.Since(w.start)))
		}
		if err := unlock(context.WithoutCancel(ctx)); err != nil {
			w.err = err
			return
		}
		if !w.counts.Load() {
			continue
		}
		w.waits = append(w.waits, got.Sub(asked).Microseconds())
		if w.Names == 1 && since > 0 {
			w.handed = append(w.handed, (got.Sub(w.start) - time.Duration(since)).Microseconds())
		}
	}
}

// spent is what this process has used so far.
func spent() result {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it fails only for bad arguments
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return result{
		CPU:    time.Duration(u.Utime.Nano() + u.Stime.Nano()),
		Allocs: m.Mallocs,
		Bytes:  m.TotalAlloc,
	}
}

func (r result) since(before result) result {
	return result{CPU: r.CPU - before.CPU, Allocs: r.Allocs - before.Allocs, Bytes: r.Bytes - before.Bytes}
}

// workMain is main of a process that another one has started to measure.
func workMain(spec string) error {
	var c cell
	if err := json.Unmarshal([]byte(spec), &c); err != nil {
		return err
	}
	err := work(c, os.Stdin, os.Stdout)
	if errors.Is(err, io.EOF) {
		return nil // the process that started this one has gone
	}
	return err
}
