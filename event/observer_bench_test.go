package event_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// BenchmarkObserver locks and unlocks with and without an observer that does nothing. Without one,
// a lock has no cost of events; see also TestEventsOfNobodyCostNoMemory in internal/session.
func BenchmarkObserver(b *testing.B) {
	rdb := redistest.Start(b).Client(b)
	for name, options := range map[string][]redlatch.Option{
		"none": nil,
		"one":  {redlatch.WithObserver(event.Func(func(context.Context, event.Event) {}))},
	} {
		b.Run(name, func(b *testing.B) {
			locks, err := redlatch.New(rdb, options...)
			require.NoError(b, err)
			mutex, ctx := locks.Mutex("orders"), b.Context()
			b.ReportAllocs()
			for b.Loop() {
				hold, err := mutex.Lock(ctx)
				if err != nil {
					b.Fatal(err)
				}
				if err := hold.Unlock(ctx); err != nil {
					b.Fatal(err)
				}
			}
			require.NoError(b, locks.Close(context.Background()))
		})
	}
}
