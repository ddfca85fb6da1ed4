package redistest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// rig is a proxy with a server behind it, in virtual time or on TCP.
type rig struct {
	*redistest.Proxy
	client func(mods ...func(*redis.Options)) *redis.Client
}

// ctx never ends, because no test here is about contexts.
var ctx = context.Background()

// everywhere runs one scenario in virtual time, and over TCP on every server. The purpose of the
// package is to make that possible.
func everywhere(t *testing.T, scenario func(t *testing.T, r rig)) {
	t.Helper()
	t.Run("virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			v := redistest.Bubble(t)
			scenario(t, rig{v.Proxy, v.Client})
		})
	})
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		p := b.Proxy(t)
		scenario(t, rig{p, func(mods ...func(*redis.Options)) *redis.Client {
			return p.Client(append([]func(*redis.Options){b.Speak}, mods...)...)
		}})
	})
}

// once makes a client that sends nothing twice.
func once(o *redis.Options) { o.MaxRetries = -1 }

// impatient makes a client that soon stops waiting for a reply.
func impatient(o *redis.Options) {
	once(o)
	o.ReadTimeout = 100 * time.Millisecond
}
