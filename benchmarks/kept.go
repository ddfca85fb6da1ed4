package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// keep takes many locks, and reports their cost in memory. Then it reports the cost of holding them
// for a while.
func keep(c cell, clients []locker, out io.Writer) (r result, err error) {
	before := heap()
	unlocks := make([]func(context.Context) error, c.Keep)
	fmt.Fprintln(out, "begin")
	err = spread(c, func(ctx context.Context, i int) error {
		unlock, err := clients[i%len(clients)].lock(ctx, "bench:"+strconv.Itoa(i))
		unlocks[i] = unlock
		return err
	})
	if err != nil {
		return r, err
	}
	kept := heap() - before
	start, spentBefore := time.Now(), spent()
	time.Sleep(c.Measure)
	r = spent().since(spentBefore)
	r.Elapsed, r.Heap = time.Since(start), kept
	fmt.Fprintln(out, "end")
	runtime.KeepAlive(unlocks)
	return r, nil
}

// once locks and unlocks many names, to measure what they leave in the server.
func once(c cell, clients []locker, out io.Writer) (r result, err error) {
	start, before := time.Now(), spent()
	fmt.Fprintln(out, "begin")
	err = spread(c, func(ctx context.Context, i int) error {
		unlock, err := clients[i%len(clients)].lock(ctx, "bench:"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		return unlock(ctx)
	})
	r = spent().since(before)
	r.Elapsed = time.Since(start)
	fmt.Fprintln(out, "end")
	return r, err
}

// spread calls do for each lock, in all goroutines of the cell.
func spread(c cell, do func(ctx context.Context, i int) error) error {
	var next atomic.Int64
	all, ctx := errgroup.WithContext(context.Background())
	for range c.Goroutines {
		all.Go(func() error {
			for {
				i := int(next.Add(1) - 1)
				if i >= c.Keep+c.Once {
					return nil
				}
				if err := do(ctx, i); err != nil {
					return err
				}
			}
		})
	}
	return all.Wait()
}

// heap returns the live bytes after a collection.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
