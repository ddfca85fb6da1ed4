package redlatch_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/semaphore"
)

// With messages, a hand-over takes no time. Without messages, it takes a poll, and each waiter gets
// the lock.
func TestLostWakesCostAPollEachAndNothingElse(t *testing.T) {
	t.Parallel()
	const poll = 2 * time.Second
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost=%v", lost), func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(s *stage) {
				var clients [2]*actor
				for i := range clients {
					clients[i] = s.actor(redlatch.WithPollInterval(poll))
					if lost {
						clients[i].net.onRead(func(_ *wire, b []byte) bool { return !isMessage(b) })
					}
				}
				hold := clients[0].lock("door")
				for i := range 20 {
					next := clients[(i+1)%2]
					waits := next.begin(next.ctx, "door")
					time.Sleep(poll / 3) // in the middle of its sleep
					s.unlock(hold)
					freed := time.Now()
					hold = waits.got()
					took := time.Since(freed)
					if lost {
						require.Positive(t, took, "round %d: it was told after all", i)
						require.LessOrEqual(t, took, poll, "round %d", i)
					} else {
						require.Zero(t, took, "round %d", i)
					}
				}
				s.unlock(hold)
			})
		})
	}
}

// The release comes in the gap between two pub/sub connections. Nobody gets its message, and the
// poll bound is very long. Only the new subscription can wake up the waiter.
func TestReleaseWhileResubscribingIsNotMissed(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		a, b := s.actor(), s.actor()
		hold := a.lock("door")
		waits := b.begin(b.ctx, "door").asked(2)

		gate := make(chan struct{})
		b.net.onDial(func() { <-gate })
		b.net.cut((*wire).subscribes)
		waits.asked(3) // the lost connection wakes it up, and the lock is still held
		s.unlock(hold)
		require.Zero(s, b.net.subscribers(), "nobody may have heard")
		close(gate)
		s.unlock(waits.got())
	})
}

func TestKilledSubscriptionsDoNotKeepWaitersFromTheLock(t *testing.T) {
	t.Parallel()
	onServer(t, func(s *stage) {
		a := s.actor()
		for range 8 {
			b := s.actor() // a new one each time, because the pause before the next connection grows
			hold := a.lock("door")
			waits := b.begin(b.ctx, "door").asked(2)
			stop := make(chan struct{})
			var killer sync.WaitGroup
			killer.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_ = s.admin.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Err()
					}
				}
			})
			s.unlock(hold)
			close(stop)
			killer.Wait()
			s.unlock(waits.got())
		}
	})
}

// A connection is open but dead. go-redis writes its pings, and does not notice that the answers
// are missing.
func TestSilentSubscriptionIsReplaced(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		a, b := s.actor(), s.actor()
		hold := a.lock("door")
		waits := b.begin(b.ctx, "door").asked(2)
		b.net.blackHole((*wire).subscribes)
		s.unlock(hold)
		hold = waits.got() // by the new subscription, because the poll bound is very long

		dead := b.net.conns((*wire).isDead)
		require.Empty(s, dead, "the dead connection is still open")
		s.await("it listens again", func() bool { return b.net.subscribers() == 1 && len(s.channels()) == 1 })
		waits = a.begin(a.ctx, "door").asked(2)
		s.unlock(hold)
		hold = waits.got()
		waits = b.begin(b.ctx, "door").asked(2)
		freed := time.Now()
		s.unlock(hold)
		s.unlock(waits.got())
		if s.virtual {
			require.Zero(s, time.Since(freed), "the new one hears")
		}
	})
}

func TestLocksWorkByPollingWherePubSubIsDenied(t *testing.T) {
	t.Parallel()
	for _, denied := range []struct {
		name  string
		rules []any
		whose int // 0: the client that unlocks, 1: the client that waits
		logs  []string
	}{
		{"PUBLISH", []any{"-publish"}, 0, []string{"publish releases"}},
		{"SUBSCRIBE", []any{"-subscribe"}, 1, []string{"pub/sub refused"}},
		{"the channel to who waits", []any{"resetchannels"}, 1, []string{"publish releases", "pub/sub refused"}},
		{"the channel to who unlocks", []any{"resetchannels"}, 0, []string{"publish releases"}},
	} {
		t.Run(denied.name, func(t *testing.T) {
			t.Parallel()
			onServer(t, func(s *stage) {
				const poll = 20 * time.Millisecond
				rules := append([]any{"ACL", "SETUSER", "default", "on", "nopass", "~*", "&*", "+@all"}, denied.rules...)
				require.NoError(s, s.admin.Do(s.Context(), rules...).Err())
				other := []any{"ACL", "SETUSER", "free", "on", ">free", "~*", "&*", "+@all"}
				require.NoError(s, s.admin.Do(s.Context(), other...).Err())
				var clients [2]*actor
				for i := range clients {
					var mods []func(*redis.Options)
					if i != denied.whose {
						mods = append(mods, func(o *redis.Options) { o.Username, o.Password = "free", "free" })
					}
					clients[i] = s.actorAs(mods, redlatch.WithPollInterval(poll))
				}
				for i := range 6 { // several rounds, and several names
					name := fmt.Sprint("door", i%2)
					hold := clients[0].lock(name)
					waits := clients[1].begin(clients[1].ctx, name).asked(2)
					s.unlock(hold)
					s.unlock(waits.got())
				}
				told := clients[denied.whose].log.lines()
				require.Len(s, told, len(denied.logs), "each thing once")
				for i, log := range denied.logs {
					require.Contains(s, told[i], log)
				}
				require.Empty(s, clients[1-denied.whose].log.lines())
			})
		})
	}
}

func TestManyContendedNamesTakeOneSubscriptionConnection(t *testing.T) {
	t.Parallel()
	onServer(t, func(s *stage) {
		const names = 1000
		a, b := s.actor(), s.actor()
		var holds []*lock.Hold
		for i := range names {
			holds = append(holds, a.lock(fmt.Sprint("door", i)))
		}
		var waits []*asking
		for i := range names {
			waits = append(waits, b.begin(b.ctx, fmt.Sprint("door", i)))
		}
		s.await("everything is subscribed", func() bool {
			all := s.channels()
			return len(slices.DeleteFunc(all, func(c string) bool { return strings.Contains(c, "redlatch-echo") })) == names
		})
		require.Len(s, s.pubSubClients(), 1)
		for _, h := range holds {
			s.unlock(h)
		}
		for _, w := range waits {
			s.unlock(w.got())
		}
		s.await("nothing is subscribed any more", func() bool { return len(s.channels()) == 0 })
		require.LessOrEqual(s, len(s.pubSubClients()), 1)
	})
}

// The lock is released after the first attempt and before the subscription. Or it is released after
// the server has subscribed and before the client knows that.
func TestReleaseBetweenAttemptAndSubscriptionIsNotMissed(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"request", "confirmation"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(s *stage) {
				a, b := s.actor(), s.actor()
				hold := a.lock("door")
				reached, gate := make(chan struct{}), make(chan struct{})
				pause := sync.OnceFunc(func() { close(reached); <-gate })
				if at == "request" {
					b.net.onWrite(func(_ *wire, p []byte) bool {
						if isSubscribe(p) {
							pause()
						}
						return true
					})
				} else {
					b.net.onRead(func(w *wire, p []byte) bool {
						if w.subscribes() && bytes.Contains(p, []byte("subscribe\r\n")) {
							pause()
						}
						return true
					})
				}
				start := time.Now()
				waits := b.begin(b.ctx, "door")
				s.receive(reached, "SUBSCRIBE is under way")
				s.unlock(hold)
				close(gate)
				s.unlock(waits.got())
				if s.virtual {
					require.Zero(s, time.Since(start))
				}
			})
		})
	}
}

// A crashed holder sends no message, and there is none for the end of its lease.
func TestLockOfACrashedHolderIsFoundAtTheEndOfItsLease(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		const lease = 5 * time.Second
		a, b := s.actor(redlatch.WithLease(lease)), s.actor()
		locked := time.Now()
		a.lock("door")
		a.die()
		s.unlock(b.begin(b.ctx, "door").got())
		require.GreaterOrEqual(t, time.Since(locked), lease)
		require.LessOrEqual(t, time.Since(locked), lease+10*time.Millisecond)
	})
}

// A flood of messages on the channel does not make the waiter flood Redis. The waiter still gets
// the true message among them.
func TestForgedWakesAreBounded(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		const flood = 20 * time.Second
		a, b := s.actor(), s.actor()
		hold := a.lock("door")
		waits := b.begin(b.ctx, "door").asked(2)
		before := b.scripts.Load()
		for start := time.Now(); time.Since(start) < flood; time.Sleep(time.Millisecond) {
			s.sim.Publish("redisson_lock__channel:{door}", "0")
		}
		asked := b.scripts.Load() - before
		require.LessOrEqual(t, asked, int64(flood/(100*time.Millisecond))+20, "once each 100 ms, after a few")
		require.Greater(t, asked, int64(50), "they are heard")
		freed := time.Now()
		s.unlock(hold)
		s.unlock(waits.got())
		require.LessOrEqual(t, time.Since(freed), 100*time.Millisecond)
	})
}

// A lock may have no end, or one that is years away, as after a step of the server's clock. A
// waiter asks about such a lock at the rate of the poll, no faster and no slower.
func TestLeaseThatNeverEndsIsPolledFor(t *testing.T) {
	t.Parallel()
	for name, ttl := range map[string]time.Duration{"no end": 0, "ten years": 10 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(s *stage) {
				const poll, rounds = 2 * time.Second, 10
				b := s.actor(redlatch.WithPollInterval(poll))
				s.sim.HSet("door", "someone:1", "1")
				if ttl > 0 {
					s.sim.SetTTL("door", ttl)
				}
				before := b.scripts.Load()
				waits := b.begin(b.ctx, "door")
				time.Sleep(rounds * poll)
				synctest.Wait()
				asked := b.scripts.Load() - before
				require.GreaterOrEqual(t, asked, int64(rounds))
				require.LessOrEqual(t, asked, int64(rounds*5/4+3), "a fifth of each poll is chance")
				s.sim.Del("door") // without a message
				gone := time.Now()
				s.unlock(waits.got())
				require.LessOrEqual(t, time.Since(gone), poll)
			})
		})
	}
}

func TestRefusalByALockWithoutEndSaysSo(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		b := s.actor()
		s.sim.HSet("door", "someone:1", "1")
		_, err := b.Mutex("door").TryLock(b.ctx)
		var refused *redlatch.NotAcquiredError
		require.ErrorAs(t, err, &refused)
		require.Negative(t, refused.Remaining)
		require.NotContains(t, err.Error(), "for -")
	})
}

// Only one waiter of a client asks. So a release costs one command, for any number of waiters.
func TestManyWaitersOfAProcessAskAsOne(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		const waiters = 200
		a, b := s.actor(), s.actor()
		hold := a.lock("door")
		before := b.scripts.Load()
		ctx, cancel := context.WithCancel(b.ctx)
		first := b.begin(ctx, "door").asked(2)
		got := make(chan *lock.Hold, waiters)
		var all sync.WaitGroup
		for range waiters {
			all.Go(func() {
				if h, err := b.Mutex("door").Lock(ctx); err == nil {
					got <- h
				}
			})
		}
		s.settle()
		require.Equal(s, int64(2), b.scripts.Load()-before, "all of them wait")
		s.unlock(hold)
		h := first.got()
		s.settle()
		require.Equal(s, int64(3), b.scripts.Load()-before, "one release, one question")
		require.Empty(s, got)
		cancel()
		all.Wait()
		s.unlock(h)
	})
}

// ---- The stage for the tests of this package. ----

// faraway is longer than any test. If something happens earlier, a message caused it, and not a
// poll.
const faraway = 20 * time.Minute

// atMost is the time limit of everything that must happen. Only a broken lock reaches it.
const atMost = time.Minute

// stage is one server, in real time or in virtual time.
type stage struct {
	*testing.T
	virtual bool
	sim     *miniredis.Miniredis // in virtual time
	srv     *redistest.Server    // otherwise
	admin   *redis.Client        // observes the server, without faults
}

// inVirtualTime runs a test with an embedded server. Waiting costs nothing there, and times are
// exact. A goroutine that is left makes it fail.
func inVirtualTime(t *testing.T, play func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// Last of all, because go-redis dials in the background, with pauses.
		t.Cleanup(func() { time.Sleep(15 * time.Second) })
		s := &stage{T: t, virtual: true, sim: redistest.Bubble(t).Server}
		s.admin = s.newClient(&wires{}, nil)
		play(s)
	})
}

// onServer runs a test with a real server of its own.
func onServer(t *testing.T, play func(s *stage), args ...string) {
	t.Helper()
	srv := redistest.Start(t, args...)
	play(&stage{T: t, srv: srv, admin: srv.Control()})
}

func onBoth(t *testing.T, play func(s *stage)) {
	t.Helper()
	t.Run("virtual time", func(t *testing.T) { t.Parallel(); inVirtualTime(t, play) })
	t.Run("server", func(t *testing.T) { t.Parallel(); onServer(t, play) })
}

func (s *stage) newClient(n *wires, mods []func(*redis.Options)) *redis.Client {
	opt := &redis.Options{
		Addr: "127.0.0.1:1", PoolSize: 1000,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if s.srv != nil {
		opt.Addr, opt.PoolSize = s.srv.Addr(), 20
	}
	dial := func(context.Context) (net.Conn, error) { return s.sim.Dial() }
	if s.srv != nil {
		dial = func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", opt.Addr)
		}
	}
	opt.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return n.dial(ctx, dial) }
	for _, mod := range mods {
		mod(opt)
	}
	rdb := redis.NewClient(opt)
	s.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// actor is a client with connections of its own, like a separate process.
type actor struct {
	*redlatch.Client
	s       *stage
	ctx     context.Context // ends with the test, and belongs to no chain
	rdb     *redis.Client
	net     *wires
	log     *logbook
	scripts *atomic.Int64 // number of answered scripts
}

// actor makes a client with very long leases and poll bounds, unless options set others.
func (s *stage) actor(options ...redlatch.Option) *actor {
	s.Helper()
	return s.actorAs(nil, options...)
}

func (s *stage) actorAs(mods []func(*redis.Options), options ...redlatch.Option) *actor {
	s.Helper()
	a := &actor{s: s, ctx: s.Context(), net: &wires{}, log: &logbook{}, scripts: new(atomic.Int64)}
	a.rdb = s.newClient(a.net, mods)
	a.rdb.AddHook(scriptHook{answered: a.scripts})
	options = append([]redlatch.Option{
		redlatch.WithLease(faraway), redlatch.WithPollInterval(faraway), redlatch.WithLogger(slog.New(a.log)),
	}, options...)
	var err error
	a.Client, err = redlatch.New(a.rdb, options...)
	require.NoError(s, err)
	s.Cleanup(a.end)
	a.warmUp()
	return a
}

// warmUp lets the client learn the server's clock, which costs its first grant another script.
func (a *actor) warmUp() {
	a.s.Helper()
	h, err := a.Mutex("warm-up").Lock(a.ctx)
	require.NoError(a.s, err)
	a.s.unlock(h)
}

func (a *actor) end() {
	ctx, cancel := context.WithTimeout(context.Background(), atMost)
	defer cancel()
	if a.net.dead.Load() {
		cancel() // Close cannot release anything
	}
	_ = a.Close(ctx)
}

// die ends the process as far as Redis can see.
func (a *actor) die() {
	a.net.dead.Store(true)
	a.net.cut(func(*wire) bool { return true })
}

// byWorkers makes the client of the actor anew, on a go-redis client in a wrapper. Workers then send
// all its commands, so that a hook sees each of them, and a caller can leave while a hook waits.
func (a *actor) byWorkers() {
	a.s.Helper()
	a.end()
	var err error
	a.Client, err = redlatch.New(embedding{a.rdb}, redlatch.WithLease(faraway), redlatch.WithPollInterval(faraway), redlatch.WithLogger(slog.New(a.log)))
	require.NoError(a.s, err)
	a.s.Cleanup(a.end)
	a.warmUp()
}

func (a *actor) lock(name string) *lock.Hold {
	a.s.Helper()
	return a.begin(a.ctx, name).got()
}

func (s *stage) unlock(h *lock.Hold) {
	s.Helper()
	require.NoError(s, h.Unlock(context.Background()))
}

// asking is a Lock in a goroutine of its own.
type asking struct {
	a      *actor
	before int64
	done   chan struct{}
	hold   *lock.Hold
	permit *semaphore.Permit // if it requests one
	err    error
	at     time.Time // when it returned
}

func (a *actor) begin(ctx context.Context, name string) *asking {
	w := &asking{a: a, before: a.scripts.Load(), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.hold, w.err = a.Mutex(name).Lock(ctx)
		w.at = time.Now()
	}()
	return w
}

// asked returns when the client has got n answers since the call began. A waiter asks, subscribes,
// asks again, and then sleeps. A wake-up between the answer and the sleep is kept for it.
func (w *asking) asked(n int64) *asking {
	w.a.s.Helper()
	w.a.s.await("the waiter asks", func() bool { return w.a.scripts.Load() >= w.before+n })
	return w
}

func (w *asking) got() *lock.Hold {
	w.a.s.Helper()
	w.a.s.receive(w.done, "Lock returns")
	require.NoError(w.a.s, w.err)
	return w.hold
}

func (w *asking) failed() error {
	w.a.s.Helper()
	w.a.s.receive(w.done, "Lock returns")
	require.Error(w.a.s, w.err)
	require.Nil(w.a.s, w.hold)
	return w.err
}

func (w *asking) pending() bool {
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

// receive waits for c to be closed. In virtual time, its limit is longer than faraway, so that the
// test can check when c was closed.
func (s *stage) receive(c <-chan struct{}, what string) {
	s.Helper()
	limit := atMost
	if s.virtual {
		limit = 10 * faraway
	}
	select {
	case <-c:
	case <-time.After(limit):
		require.FailNow(s, "did not happen: "+what)
	}
}

// await waits for a state that no message announces.
func (s *stage) await(what string, ok func() bool) {
	s.Helper()
	pause := time.Millisecond // it grows, because most states are there at once, or after seconds
	for deadline := time.Now().Add(atMost); !ok(); pause = min(2*pause, 16*time.Millisecond) {
		if s.settle(); ok() {
			return
		}
		require.False(s, time.Now().After(deadline), "did not happen: %s", what)
		time.Sleep(pause)
	}
}

// settle lets everybody do what they can do now. A real server has no such moment. There, settle
// only makes it likely that forbidden events show.
func (s *stage) settle() {
	if s.virtual {
		synctest.Wait()
	}
}

func (s *stage) channels() []string {
	s.Helper()
	all, err := s.admin.PubSubChannels(context.Background(), "*").Result()
	require.NoError(s, err)
	return all
}

// keys are all keys except the fences, which stay by design.
func (s *stage) keys() []string {
	s.Helper()
	all, err := s.admin.Keys(context.Background(), "*").Result()
	require.NoError(s, err)
	var keys []string
	for _, k := range all {
		if !strings.HasPrefix(k, "redisson_lock_token:") {
			keys = append(keys, k)
		}
	}
	return keys
}

func (s *stage) pubSubClients() []string {
	s.Helper()
	list, err := s.admin.Do(context.Background(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	require.NoError(s, err)
	return strings.FieldsFunc(list, func(r rune) bool { return r == '\n' })
}

// nothingRemains waits until no lock is held and nobody listens.
func (s *stage) nothingRemains() {
	s.Helper()
	s.await("nothing remains", func() bool { return len(s.keys()) == 0 && len(s.channels()) == 0 })
}

// scriptHook counts answered scripts, and can delay them. Echoes do not count: they ask nothing.
type scriptHook struct{ answered *atomic.Int64 }

func (h scriptHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h scriptHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		isEcho := err == nil && scriptOf(cmd) == "pubsub/echo" // a command whose arguments were read counts as written
		if strings.HasPrefix(cmd.Name(), "eval") && !isEcho && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			h.answered.Add(1)
		}
		return err
	}
}

func (h scriptHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(h, next)
}

// wires has the connections of one client, and their faults.
type wires struct {
	dead    atomic.Bool // nobody can be reached
	deaf    atomic.Bool // new connections are black holes
	dialing atomic.Pointer[func()]
	reading atomic.Pointer[func(w *wire, p []byte) (keep bool)]
	writing atomic.Pointer[func(w *wire, p []byte) (pass bool)]

	mu   sync.Mutex
	open map[*wire]struct{}
}

// onDial, onRead and onWrite let f observe dials, received data and sent data. f may wait. Data
// that it does not want is swallowed. Nil ends that.
func (n *wires) onDial(f func())                        { n.dialing.Store(&f) }
func (n *wires) onRead(f func(w *wire, p []byte) bool)  { n.reading.Store(&f) }
func (n *wires) onWrite(f func(w *wire, p []byte) bool) { n.writing.Store(&f) }

func (n *wires) dial(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	if f := n.dialing.Load(); f != nil && *f != nil && ctx.Err() == nil {
		(*f)()
	}
	if err := ctx.Err(); err != nil {
		return nil, err // like the dialers of package net
	}
	if n.dead.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: net.ErrClosed}
	}
	c, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: c, of: n}
	w.hole.Store(n.deaf.Load())
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open == nil {
		n.open = map[*wire]struct{}{}
	}
	n.open[w] = struct{}{}
	return w, nil
}

// conns returns the open connections for which is returns true.
func (n *wires) conns(is func(*wire) bool) (found []*wire) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.open {
		if is(w) {
			found = append(found, w)
		}
	}
	return found
}

func (n *wires) subscribers() int { return len(n.conns((*wire).subscribes)) }

// cut ends connections.
func (n *wires) cut(which func(*wire) bool) {
	for _, w := range n.conns(which) {
		_ = w.Close()
	}
}

// blackHole swallows all data on connections in both directions, and leaves them open.
func (n *wires) blackHole(which func(*wire) bool) {
	for _, w := range n.conns(which) {
		w.hole.Store(true)
	}
}

type wire struct {
	net.Conn
	of   *wires
	sub  atomic.Bool // has sent SUBSCRIBE
	hole atomic.Bool
}

func (w *wire) subscribes() bool { return w.sub.Load() }
func (w *wire) isDead() bool     { return w.hole.Load() }

func (w *wire) Read(p []byte) (int, error) {
	for {
		n, err := w.Conn.Read(p)
		f := w.of.reading.Load()
		keep := f == nil || *f == nil || n == 0 || (*f)(w, p[:n])
		if keep && !w.hole.Load() || err != nil {
			return n, err
		}
	}
}

func (w *wire) Write(p []byte) (int, error) {
	if isSubscribe(p) {
		w.sub.Store(true)
	}
	f := w.of.writing.Load()
	if w.hole.Load() || f != nil && *f != nil && !(*f)(w, p) {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

func (w *wire) Close() error {
	w.of.mu.Lock()
	delete(w.of.open, w)
	w.of.mu.Unlock()
	return w.Conn.Close()
}

func isSubscribe(p []byte) bool { return bytes.Contains(p, []byte("\r\nsubscribe\r\n")) }
func isMessage(p []byte) bool   { return bytes.Contains(p, []byte("\r\nmessage\r\n")) }

// logbook keeps the log, one line for each record.
type logbook struct {
	mu   sync.Mutex
	said []string
}

func (l *logbook) Enabled(context.Context, slog.Level) bool { return true }
func (l *logbook) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logbook) WithGroup(string) slog.Handler            { return l }

func (l *logbook) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(&b, " %s", a); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, b.String())
	return nil
}

func (l *logbook) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.said...)
}
