package rivals_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/workload"
)

// README.md of this repository.
var ours = library{
	name:   "redlatch",
	module: "github.com/redlatch/redlatch",
	open: func(t testing.TB, addr string, size scale) client {
		rdb := connect(addr, size)
		locks, err := redlatch.New(rdb, redlatch.WithLease(size.lease), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		return redlatchClient{locks, rdb}
	},
	key:     func(name string) string { return name },
	meaning: workload.Redlatch,
	signal:  true, window: true, token: true, releases: true,
}

type redlatchClient struct {
	locks *redlatch.Client
	rdb   *redis.Client
}

func (c redlatchClient) lock(name string) workload.Lock { return workload.Of(c.locks.Mutex(name)) }

func (c redlatchClient) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.locks.Close(ctx) // the server of the locks may be gone
	_ = c.rdb.Close()
}
