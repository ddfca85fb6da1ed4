package lua_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/lua"
)

// A script is sent once, and the reply says what came of it. This is below all retries and
// renewals.
func Example() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	ctx := context.Background()

	acquire := func(id string) {
		reply, err := lua.Acquire(ctx, rdb, lua.AcquireParams{
			LockKey: "orders:42", FenceKey: "redisson_lock_token:{orders:42}", QueueKey: "redlatch:queue:{orders:42}",
			Acquisition: id, Lease: 30 * time.Second, Holds: 1,
			VoidAfter: lua.Time(time.Now().Add(time.Second).UnixMicro()), FenceRetention: time.Hour,
		})
		fmt.Println(id, "granted:", reply.Status == lua.Granted, "busy:", reply.Status == lua.Busy, reply.Holder, err)
	}
	acquire("3f9c:1")
	acquire("3f9c:1") // the same command again: the same grant
	acquire("77aa:1")
	reply, err := lua.Release(ctx, rdb, lua.ReleaseParams{
		LockKey: "orders:42", QueueKey: "redlatch:queue:{orders:42}", Channel: "redisson_lock__channel:{orders:42}",
		Acquisition: "3f9c:1",
	})
	fmt.Println("gone:", reply.Status == lua.Gone, err)
	acquire("77aa:1")
	// Output:
	// 3f9c:1 granted: true busy: false  <nil>
	// 3f9c:1 granted: true busy: false  <nil>
	// 77aa:1 granted: false busy: true 3f9c:1 <nil>
	// gone: false <nil>
	// 77aa:1 granted: true busy: false  <nil>
}
