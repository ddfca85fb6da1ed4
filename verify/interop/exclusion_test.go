package interop_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/reentrant"
)

// Four Go and four Java workers count to 10,000 with a plain read and a plain write, guarded by
// nothing but the lock. Every lost update means that two workers held the lock.
func TestGoAndJavaExcludeEachOther(t *testing.T) {
	r := java(t)
	server := redistest.Start(t)
	rdb := server.Client(t)
	name, counter := redistest.Name(t), redistest.Name(t)
	const workers, total = 4, 10_000
	require.NoError(t, rdb.Set(t.Context(), counter, 0, 0).Err())

	service := r.open(t, server.Addr())
	var javas []<-chan reply
	for i := range workers {
		javas = append(javas, service.thread(strconv.Itoa(i)).begin("turns", "lock", name, counter, strconv.Itoa(total)))
	}
	gos := make(chan turns, workers)
	m := locksOn(t, rdb).Mutex(name)
	for range workers {
		go func() { gos <- takeTurns(context.Background(), m, rdb, counter, total) }()
	}

	var shares []float64
	var sum, ofGo int
	for range workers {
		w := within(t, gos, "a Go worker is done")
		require.NoError(t, w.err)
		shares, sum, ofGo = append(shares, float64(w.n)), sum+w.n, ofGo+w.n
	}
	for i, answer := range javas {
		w := service.thread(strconv.Itoa(i)).await(answer, "is done")
		require.Empty(t, w.err)
		n, err := strconv.Atoi(w.value)
		require.NoError(t, err)
		shares, sum = append(shares, float64(n)), sum+n
	}
	require.Equal(t, total, sum, "turns that were taken, for %d updates: some were lost", total)
	require.Equal(t, strconv.Itoa(total), rdb.Get(t.Context(), counter).Val())
	t.Logf("turns of each worker, four of Go and four of Java: %v; Jain %.2f; Go %d, Java %d, Jain of the two %.2f",
		shares, jain(shares...), ofGo, total-ofGo, jain(float64(ofGo), float64(total-ofGo)))
	for _, n := range shares {
		require.Positive(t, n, "somebody got nothing: %v", shares)
	}
}

// turns counts how often a worker held the lock.
type turns struct {
	n   int
	err error
}

// takeTurns does the same as turns of the driver.
func takeTurns(ctx context.Context, m *reentrant.Mutex, rdb redis.Cmdable, counter string, total int) (mine turns) {
	for done := false; !done; {
		mine.err = m.Do(ctx, func(ctx context.Context) error {
			n, err := rdb.Get(ctx, counter).Int()
			if err != nil || n >= total {
				done = true
				return err
			}
			mine.n++
			return rdb.Set(ctx, counter, n+1, 0).Err()
		})
		done = done || mine.err != nil
	}
	return mine
}

// jain is 1 if all shares are equal, and 1/n if one worker has everything.
func jain(shares ...float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(shares)) * squares)
}
