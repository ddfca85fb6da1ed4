//go:build unix

package chaos_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/event"
)

// misbehaviours are what observers of a worker do with some events. No lock may notice it.
var misbehaviours = map[string]func(lease time.Duration){
	"observers blocked":               func(lease time.Duration) { time.Sleep(rand.N(2 * lease)) },
	"observers panicked":              func(time.Duration) { panic("an observer") },
	"observers ended their goroutine": func(time.Duration) { runtime.Goexit() },
}

// misbehaves returns an observer that misbehaves with one event of twenty. It counts that in the
// Redis of the resources first, because its process may be killed at any time.
func misbehaves(resources *redis.Client, what string, lease time.Duration) event.Observer {
	return event.Func(func(ctx context.Context, _ event.Event) {
		if rand.N(20) == 0 {
			resources.Incr(ctx, what)
			misbehaviours[what](lease)
		}
	})
}

// countMisbehaviour adds the counts to the row, which is invalid without each of them.
func (k *campaign) countMisbehaviour() {
	k.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: k.resources.Addr()})
	defer rdb.Close()
	for what := range misbehaviours {
		n, err := rdb.Get(context.Background(), what).Int()
		if err != redis.Nil { //nolint:errorlint // the very value
			require.NoError(k, err)
		}
		k.bit(what, n)
	}
}
