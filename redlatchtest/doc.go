// Package redlatchtest tests programs that use redlatch, without a Redis server.
//
// New gives a test a real *redlatch.Client on an embedded server. Leases end on that server as they
// do in Redis. The test can then make happen what is rare in production: somebody else holds the
// lock (HoldElsewhere), the lock is lost in the middle of the work (Lose), Redis is down (Down), or
// Redis answers with an error (FailNext, Fail).
//
//	server := redlatchtest.New(t)
//	shop := NewShop(server.Client)
//	release := server.HoldElsewhere("orders:42")
//	err := shop.TryCharge(ctx, "orders:42") // finds the lock held
//
// It works inside a bubble of testing/synctest, and outside of one. Inside a bubble, time.Sleep
// moves the clocks of the program and of the server, so a test does not wait for leases and
// deadlines. Here a call waits for two seconds, and the test takes milliseconds:
//
//	synctest.Test(t, func(t *testing.T) {
//		server := redlatchtest.New(t)
//		shop := NewShop(server.Client)
//		release := server.HoldElsewhere("orders:42")
//		time.AfterFunc(2*time.Second, release)
//		err := shop.Charge(t.Context(), "orders:42") // waits, and then has the lock
//	})
//
// An hour of virtual time costs seconds for each waiter, because waiters send heartbeats and
// holders renew. Renewals come at slightly random instants, as in production, so do not expect a
// loss at an exact time. Outside, both clocks are real. The clients reach the server through pipes,
// so there is no port. When the test ends, no goroutine is left.
//
// The embedded server is miniredis with the scripts of redlatch. It is one server without
// persistence, replicas or memory limits. The page docs/testing.md shows the tests of a whole
// service.
//
// Use the version of this module that belongs to the version of redlatch: it uses internal packages
// of redlatch.
package redlatchtest
