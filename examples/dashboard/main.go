// Dashboard: workers contend for locks, and a page in the browser shows them. The page allows
// actions, so you can release a lock and watch what happens.
//
//	go -C examples/dashboard run .
//	go -C examples/dashboard run . -listen 127.0.0.1:9000
//
// It always uses an embedded server, because everybody who opens the page may release locks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/server"
	"github.com/redlatch/redlatch/redlatchui"
)

const prefix = "demo:"

func main() {
	log.SetFlags(0)
	listen := flag.String("listen", "127.0.0.1:8420", "`address` of the page")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	listener, err := listenTo(*listen)
	if err == nil {
		err = run(ctx, listener)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// listenTo refuses other addresses than those of loopback, because there is no login.
func listenTo(address string) (net.Listener, error) {
	tcp, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	if !tcp.IP.IsLoopback() {
		return nil, errors.New("everybody may release locks on this page, so -listen takes a loopback address only")
	}
	return net.ListenTCP("tcp", tcp)
}

func run(ctx context.Context, listener net.Listener) error {
	url, stopServer, err := server.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer stopServer()
	rdb, err := server.Connect(url)
	if err != nil {
		return err
	}
	defer rdb.Close()
	losses := redlatchui.NewLosses()
	locks, err := redlatch.New(rdb, redlatch.WithPrefix(prefix), redlatch.WithDescription("the page"))
	if err != nil {
		return err
	}
	defer locks.Close(context.Background())
	page, err := redlatchui.New(rdb, locks,
		redlatchui.WithLosses(losses),
		redlatchui.WithLoopbackOnly(),
		redlatchui.WithLogger(slog.New(slog.NewTextHandler(os.Stdout, nil))),
		redlatchui.WithActions(func(*http.Request) (who string, allowed bool) { return "you", true }))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var workers sync.WaitGroup
	for i := range 8 {
		workers.Go(func() {
			if err := work(ctx, url, fmt.Sprintf("worker-%d", i+1), losses); err != nil {
				log.Printf("worker %d: %v", i+1, err)
			}
		})
	}
	err = serve(ctx, listener, page)
	stop()
	workers.Wait()
	return err
}

// serve serves the page until ctx ends.
func serve(ctx context.Context, listener net.Listener, page *redlatchui.Handler) error {
	web := &http.Server{Handler: page, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	fmt.Printf("The page is at http://%s/ (^C ends it)\n", listener.Addr())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	within, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = page.Close(within) // Shutdown waits for live pages
	return web.Shutdown(within)
}

// work is what a process of a service would do. Each worker has a client of its own.
func work(ctx context.Context, url, name string, losses *redlatchui.Losses) error {
	rdb, err := server.Connect(url)
	if err != nil {
		return err
	}
	defer rdb.Close()
	locks, err := redlatch.New(rdb, redlatch.WithPrefix(prefix), redlatch.WithDescription(name), redlatch.WithObserver(losses),
		redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer locks.Close(context.Background())
	var jobs sync.WaitGroup
	defer jobs.Wait()
	each := func(job func() error) {
		jobs.Go(func() {
			for ctx.Err() == nil {
				if err := job(); err != nil && ctx.Err() == nil { // you removed it from the queue, or took its lock
					sleep(ctx, time.Second, 2*time.Second)
				}
			}
		})
	}
	each(func() error { // a queue, in order of arrival
		return locks.FairMutex("reports:monthly").Do(ctx, func(ctx context.Context) error { return sleep(ctx, 2*time.Second, 6*time.Second) })
	})
	each(func() error { // a semaphore at its limit
		return locks.Semaphore("render:gpu", 6).Do(ctx, 1+rand.IntN(2), func(ctx context.Context) error {
			return sleep(ctx, 3*time.Second, 9*time.Second)
		})
	})
	each(func() error { // many locks, rarely contended
		if err := sleep(ctx, 0, 2*time.Second); err != nil {
			return err
		}
		return locks.Mutex(fmt.Sprintf("orders:%d", rand.IntN(40))).Do(ctx, func(ctx context.Context) error {
			return sleep(ctx, time.Second, 8*time.Second)
		})
	})
	return nil
}

// sleep is the work. It ends when the lock is lost.
func sleep(ctx context.Context, least, most time.Duration) error {
	select {
	case <-time.After(least + rand.N(most-least)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
