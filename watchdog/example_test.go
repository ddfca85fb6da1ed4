package watchdog_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/watchdog"
)

// The server lost the lock: its holder finds out at the next renewal.
func Example() {
	dog := watchdog.New(watchdog.Config{
		Renew: func(_ context.Context, _ watchdog.Group, batch []watchdog.Renewal) ([]watchdog.Result, error) {
			answers := make([]watchdog.Result, len(batch))
			for i := range batch {
				answers[i] = watchdog.Gone
			}
			return answers, nil
		},
	})
	defer dog.Close()

	lost := make(chan watchdog.Reason, 1)
	lease := dog.Watch(watchdog.Spec{
		Key: "orders:42", ID: "3f9c:1",
		Lease: time.Second, Margin: 50 * time.Millisecond, Interval: 100 * time.Millisecond,
		Renew:  true,
		Sent:   time.Now(),
		OnLost: watchdog.LossFunc(func(r watchdog.Reason) { lost <- r }),
	})

	fmt.Println("trusted:", lease.Trusted())
	fmt.Println("lost:", <-lost)
	fmt.Println("trusted:", lease.Trusted())
	// Output:
	// trusted: true
	// lost: the server says it is not ours
	// trusted: false
}
