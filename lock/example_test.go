package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/lock"
)

// exampleClient gives the examples a server of their own.
func exampleClient() (locks *redlatch.Client, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	locks, err = redlatch.New(rdb)
	if err != nil {
		log.Fatal(err)
	}
	return locks, func() {
		_ = locks.Close(context.Background())
		_ = rdb.Close()
		server.Close()
	}
}

// writeOrder stands for a write to a resource that rejects fences below the largest it has seen.
func writeOrder(_ context.Context, fence int64) error {
	fmt.Println("fenced:", fence > 0)
	return nil
}

func ExampleFromContext() {
	locks, stop := exampleClient()
	defer stop()

	err := locks.Mutex("orders:42").Do(context.Background(), func(ctx context.Context) error {
		hold, ok := lock.FromContext(ctx) // also in the functions that this one calls
		if !ok {
			return fmt.Errorf("not under a lock")
		}
		return writeOrder(ctx, hold.Fence())
	})
	fmt.Println(err)
	// Output:
	// fenced: true
	// <nil>
}

// The inner call re-enters the order, although the time for waits is over. A free lock is acquired
// too.
func ExampleWithWaitDeadline() {
	locks, stop := exampleClient()
	defer stop()
	order, account := locks.Mutex("orders:42"), locks.Mutex("accounts:7")

	ctx := lock.WithWaitDeadline(context.Background(), time.Now()) // it is over when the calls begin
	err := order.Do(ctx, func(ctx context.Context) error {
		return account.Do(ctx, func(ctx context.Context) error {
			return order.Do(ctx, func(ctx context.Context) error {
				fmt.Println("context ended:", ctx.Err() != nil)
				return nil
			})
		})
	})
	fmt.Println(err)
	// Output:
	// context ended: false
	// <nil>
}

// prepareOrder stands for work that stops when its context ends.
func prepareOrder(context.Context) error { return nil }

// A handler stops when its client has gone, and when the lock is lost.
func ExampleHold_Bind() {
	locks, stop := exampleClient()
	defer stop()

	handler := func(w http.ResponseWriter, r *http.Request) {
		hold, err := locks.Mutex("orders:42").TryLock(r.Context())
		switch {
		case errors.Is(err, redlatch.ErrNotAcquired):
			http.Error(w, err.Error(), http.StatusConflict)
			return
		case err != nil: // the example of package lockerr has all of them
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer hold.Unlock(r.Context())

		ctx, cancel := hold.Bind(r.Context())
		defer cancel()
		if err := prepareOrder(ctx); err != nil {
			lost := errors.Is(context.Cause(ctx), redlatch.ErrLost)
			http.Error(w, fmt.Sprint(err, "; lost the lock: ", lost), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "done")
	}

	w := httptest.NewRecorder()
	handler(w, httptest.NewRequest(http.MethodPost, "/orders/42", nil))
	fmt.Print(w.Body)
	// Output: done
}

// report stands for a service that works under a lock, whichever lock that is.
type report struct{ lock lock.Locker }

func (r report) write(ctx context.Context) error {
	return r.lock.Do(ctx, func(context.Context) error {
		fmt.Println("under", r.lock.Name())
		return nil
	})
}

// alwaysFree is a fake for tests: nobody else wants the lock.
type alwaysFree struct{ lock.Locker }

func (alwaysFree) Name() string                                { return "a fake" }
func (alwaysFree) HoldFrom(context.Context) (*lock.Hold, bool) { return nil, false }
func (alwaysFree) Do(ctx context.Context, fn func(context.Context) error) error {
	return fn(ctx)
}

func ExampleLocker() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()

	for _, l := range []lock.Locker{locks.Mutex("daily"), locks.FairMutex("weekly"), alwaysFree{}} {
		if err := (report{l}).write(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// under daily
	// under weekly
	// under a fake
}

// All replicas want to run a job at about the same time. One does, and the others find the lock
// kept.
func ExampleHold_UnlockAfter() {
	locks, stop := exampleClient()
	defer stop()

	run := func(ctx context.Context) error {
		fmt.Println("runs the job")
		hold, _ := lock.FromContext(ctx)
		return hold.UnlockAfter(ctx, 5*time.Minute) // Do does not unlock then
	}
	for range 2 {
		err := locks.Mutex("nightly").TryDo(context.Background(), run)
		fmt.Println("somebody else did it:", errors.Is(err, redlatch.ErrNotAcquired))
	}
	// Output:
	// runs the job
	// somebody else did it: false
	// somebody else did it: true
}

// A web server takes the lock and starts a job in another process, which goes on with it.
func ExampleHold_Export() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()

	hold, err := locks.Mutex("report:7").TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	text, err := hold.Export(ctx, time.Minute) // the job must start within a minute
	if err != nil {
		log.Fatal(err)
	}

	// In the job, which got the text:
	job, err := locks.Mutex("report:7").Attach(ctx, text)
	if err != nil {
		log.Fatal(err)
	}
	defer job.Unlock(ctx)
	fmt.Println("a larger fence:", job.Fence() > hold.Fence())
	_, err = locks.Mutex("report:7").Attach(ctx, text)
	fmt.Println("only once:", errors.Is(err, redlatch.ErrLost))
	// Output:
	// a larger fence: true
	// only once: true
}

// finish stands for the work of the job.
func finish(ctx context.Context) error {
	hold, _ := lock.FromContext(ctx)
	fmt.Println("goes on with:", hold.Name())
	return nil
}

func ExampleDo() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()

	hold, err := locks.Mutex("orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	text, err := hold.Export(ctx, time.Minute)
	if err != nil {
		log.Fatal(err)
	}

	// In another process, which got the text:
	attach := func(ctx context.Context) (*lock.Hold, error) { return locks.Mutex("orders:42").Attach(ctx, text) }
	if err := lock.Do(ctx, attach, finish); err != nil {
		log.Fatal(err)
	}
	// Output:
	// goes on with: orders:42
}

// importPart stands for a part of long work, which may hang.
func importPart(context.Context, int) error { return nil }

func ExampleHold_ReportProgress() {
	locks, stop := exampleClient()
	defer stop()

	mu := locks.Mutex("import", redlatch.WithProgressTimeout(time.Minute))
	err := mu.Do(context.Background(), func(ctx context.Context) error {
		hold, _ := lock.FromContext(ctx)
		for part := range 3 {
			if err := importPart(ctx, part); err != nil {
				return err
			}
			hold.ReportProgress() // if a part takes more than a minute, the lock is lost
		}
		return nil
	})
	fmt.Println(err)
	// Output: <nil>
}

// table stands for a database whose rows remember the largest fence that has written to them.
type table struct{ fence int64 }

func (t *table) write(fence int64) bool {
	if fence < t.fence {
		return false // a later holder has written
	}
	t.fence = fence
	return true
}

// A holder that comes late is rejected by its fence.
func ExampleHold_Fence() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	orders := new(table)

	late, err := locks.Mutex("orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := late.Unlock(ctx); err != nil { // stands for a pause in which its lease ends
		log.Fatal(err)
	}
	next, err := locks.Mutex("orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer next.Unlock(ctx)
	fmt.Println("next:", orders.write(next.Fence()))
	fmt.Println("late:", orders.write(late.Fence()))
	// Output:
	// next: true
	// late: false
}

// The context of a hold ends when the lock is lost, and its cause says why.
func ExampleHold_Context() {
	locks, stop := exampleClient()
	defer stop()
	mu := locks.Mutex("orders:42", redlatch.WithRenewInterval(20*time.Millisecond)) // to notice it soon
	hold, err := mu.Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}

	if _, err := mu.ForceRelease(context.Background(), hold.ID()); err != nil { // by an operator
		log.Fatal(err)
	}
	<-hold.Context().Done() // at the next renewal
	fmt.Println("lost:", errors.Is(context.Cause(hold.Context()), redlatch.ErrLost))
	fmt.Println("trusted:", hold.Trusted())
	// Output:
	// lost: true
	// trusted: false
}
