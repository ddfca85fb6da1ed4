package redistest

import "github.com/redis/go-redis/v9"

// newClient makes a client of a TCP address, as a user of the library would, and closes it when the
// test ends.
func newClient(t TB, addr string, mods []func(*redis.Options)) *redis.Client {
	t.Helper()
	opt := &redis.Options{Addr: addr}
	for _, mod := range mods {
		mod(opt)
	}
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() }) // a test may have closed it itself
	return c
}
