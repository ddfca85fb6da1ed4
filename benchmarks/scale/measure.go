package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/benchmarks/page"
	"github.com/redlatch/redlatch/benchmarks/server"
	"github.com/redlatch/redlatch/lock"
)

// costs are in µs of CPU time and in bytes. Server is of all nodes together.
type costs struct {
	Turn      load // a lock and an unlock on one server
	HandOver  load // the same, of a name that two clients use in turn
	Renewal   load // on one server, which gets many locks in one command
	Hold      memory
	Fence     memory
	Plain     waiter // of a plain mutex
	Fair      waiter
	Cluster   load    // a lock and an unlock in a cluster, without the broadcast
	Broadcast float64 // of a lock and an unlock, for each other node

	ClusterRenewal load // each slot has commands of its own, and each client has few locks of a slot

	Near, Far latency // of a message in a cluster: on one node, and on two
}

type load struct{ Server, Client float64 }

type memory struct{ Server, Client float64 }

type waiter struct {
	memory
	PerSecond load
}

// latency is in ms.
type latency struct{ P50, P99 float64 }

const lease = 30 * time.Second // the default

// bed is a server or a cluster, with clients.
type bed struct {
	*server.Server
	clients []*redlatch.Client
	closers []func()
	holds   []*lock.Hold
}

func newBed(nodes, clients int, options ...redlatch.Option) (*bed, error) {
	s, err := server.Redis(nodes)
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("%d nodes: %w", nodes, err)
	}
	b := &bed{Server: s}
	for range clients {
		var rdb redis.UniversalClient
		if nodes > 1 {
			rdb = redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs, ContextTimeoutEnabled: true})
		} else {
			rdb = redis.NewClient(&redis.Options{Addr: s.Addrs[0], ContextTimeoutEnabled: true})
		}
		b.closers = append(b.closers, func() { _ = rdb.Close() })
		c, err := redlatch.New(rdb, append(options, redlatch.WithLogger(slog.New(slog.DiscardHandler)))...)
		if err != nil {
			b.end()
			return nil, err
		}
		b.clients = append(b.clients, c)
	}
	return b, nil
}

// end stops the servers first, so that nobody waits for the release of thousands of locks.
func (b *bed) end() {
	b.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range b.clients {
		_ = c.Close(ctx)
	}
	for _, closeOne := range b.closers {
		closeOne()
	}
}

// usage is what was used since the start: CPU time in µs, and live bytes.
type usage struct {
	load
	mem memory
	at  time.Time
}

// used collects garbage first if bytes are wanted.
func (b *bed) used(bytes bool) (u usage, err error) {
	s, err := b.Used(nil)
	if err != nil {
		return u, err
	}
	u.Server, u.mem.Server, u.at = s.CPU, s.Memory, time.Now()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return u, err
	}
	u.Client = float64(time.Duration(r.Utime.Nano()+r.Stime.Nano())) / 1e3
	if bytes {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		u.mem.Client = float64(m.HeapAlloc)
	}
	return u, nil
}

// spend returns what do uses.
func (b *bed) spend(bytes bool, do func() error) (u usage, took time.Duration, err error) {
	before, err := b.used(bytes)
	if err != nil {
		return u, 0, err
	}
	begun := time.Now()
	if err := do(); err != nil {
		return u, 0, err
	}
	took = time.Since(begun)
	u, err = b.used(bytes)
	u.Server, u.Client = u.Server-before.Server, u.Client-before.Client
	u.mem.Server, u.mem.Client = u.mem.Server-before.mem.Server, u.mem.Client-before.mem.Client
	return u, took, err
}

func (l load) per(n float64) load     { return load{l.Server / n, l.Client / n} }
func (m memory) per(n float64) memory { return memory{m.Server / n, m.Client / n} }

// measure fills in everything. Each step has servers of its own.
func (r *results) measure(n sizes) error {
	for _, step := range []func(sizes) error{
		r.measureTurns, r.measureHandOvers, r.measureNames, r.measureHeld, r.measureWaiters,
		r.measureCluster, r.measureMessages, r.checkRenewals, r.checkMemory,
	} {
		begun := time.Now()
		if err := step(n); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s, ", time.Since(begun).Round(100*time.Millisecond))
	}
	fmt.Fprintln(os.Stderr)
	return nil
}

// turns locks and unlocks names for so long, in 64 goroutines for each server. It returns the cost
// of a turn.
func (b *bed) turns(long time.Duration, name func(goroutine int) string) (load, error) {
	loop := func(long time.Duration) (n float64, err error) {
		var total atomic.Int64
		ctx, cancel := context.WithTimeout(context.Background(), long)
		defer cancel()
		var all errgroup.Group
		for i := range 64 * len(b.Nodes) {
			all.Go(func() error {
				m := b.clients[i%len(b.clients)].Mutex(name(i))
				for {
					h, err := m.Lock(ctx)
					if ctx.Err() != nil {
						if err == nil {
							err = h.Unlock(context.Background())
							total.Add(1)
						} else {
							err = nil
						}
						return err
					}
					if err != nil {
						return err
					}
					if err := h.Unlock(context.Background()); err != nil {
						return err
					}
					total.Add(1)
				}
			})
		}
		err = all.Wait()
		return float64(total.Load()), err
	}
	if _, err := loop(long / 8); err != nil { // connections and scripts are there afterwards
		return load{}, err
	}
	var n float64
	u, _, err := b.spend(false, func() (err error) { n, err = loop(long); return err })
	return u.per(n), err
}

func (r *results) measureTurns(n sizes) error {
	b, err := newBed(1, 1)
	if err != nil {
		return err
	}
	defer b.end()
	r.Costs.Turn, err = b.turns(n.turns, ownName)
	return err
}

func ownName(i int) string { return "scale:" + strconv.Itoa(i) }

func (r *results) measureHandOvers(n sizes) error {
	b, err := newBed(1, 2)
	if err != nil {
		return err
	}
	defer b.end()
	r.Costs.HandOver, err = b.turns(n.turns, func(i int) string { return ownName(i / 2) })
	return err
}

// spread calls do n times in 256 goroutines.
func spread(n int, do func(i int) error) error {
	var all errgroup.Group
	all.SetLimit(256)
	for i := range n {
		all.Go(func() error { return do(i) })
	}
	return all.Wait()
}

func (r *results) measureNames(n sizes) error {
	b, err := newBed(1, 1)
	if err != nil {
		return err
	}
	defer b.end()
	u, _, err := b.spend(true, func() error {
		return spread(n.names, func(i int) error {
			h, err := b.clients[0].Mutex(ownName(i)).Lock(context.Background())
			if err != nil {
				return err
			}
			return h.Unlock(context.Background())
		})
	})
	r.Costs.Fence = u.mem.per(float64(n.names))
	return err
}

// hold locks n names, in turn by the clients.
func (b *bed) hold(n int) (memory, error) {
	b.holds = make([]*lock.Hold, n)
	u, _, err := b.spend(true, func() error {
		return spread(n, func(i int) (err error) {
			b.holds[i], err = b.clients[i%len(b.clients)].Mutex(ownName(i)).Lock(context.Background())
			return err
		})
	})
	return u.mem, err
}

// lost is an error if a hold was lost.
func (b *bed) lost() error {
	n := 0
	for _, h := range b.holds {
		if !h.Trusted() {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("%d of %d holds were lost", n, len(b.holds))
	}
	return nil
}

func rest(long time.Duration) func() error {
	return func() error { time.Sleep(long); return nil }
}

func (r *results) measureHeld(n sizes) (err error) {
	var hold memory
	if hold, r.Costs.Renewal, err = renewals(1, 1, n.held, n.heldFor); err != nil {
		return err
	}
	r.Costs.Hold = memory{hold.Server - r.Costs.Fence.Server, hold.Client} // the fence stays after the hold
	_, r.Costs.ClusterRenewal, err = renewals(3, 16, n.held/2, n.heldFor)
	return err
}

// renewals holds locks for a while. It returns the cost of a hold and of a renewal.
func renewals(nodes, clients, held int, long time.Duration) (hold memory, renewal load, err error) {
	interval := min(lease/3, long/2)
	b, err := newBed(nodes, clients, redlatch.WithLease(lease), redlatch.WithRenewInterval(interval))
	if err != nil {
		return hold, renewal, err
	}
	defer b.end()
	if hold, err = b.hold(held); err != nil {
		return hold, renewal, err
	}
	u, took, err := b.spend(false, rest(long))
	return hold.per(float64(held)), u.per(float64(held) * took.Seconds() / interval.Seconds()), errors.Join(err, b.lost())
}

func (r *results) measureWaiters(n sizes) error {
	for kind, into := range map[string]*waiter{"plain": &r.Costs.Plain, "fair": &r.Costs.Fair} {
		if err := measureWaiters(n, kind, into); err != nil {
			return err
		}
	}
	return nil
}

// measureWaiters has each waiter wait for a name of its own, which another client holds for an
// hour.
func measureWaiters(n sizes, kind string, into *waiter) error {
	b, err := newBed(1, 2, redlatch.WithLease(time.Hour))
	if err != nil {
		return err
	}
	defer b.end()
	if _, err := b.hold(n.waiters); err != nil { // the clients take turns, so each waits for the other
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{}, n.waiters)
	u, _, err := b.spend(true, func() error {
		for i := range n.waiters {
			c := b.clients[(i+1)%2]
			go func() {
				if kind == "fair" {
					_, _ = c.FairMutex(ownName(i)).Lock(ctx)
				} else {
					_, _ = c.Mutex(ownName(i)).Lock(ctx)
				}
				done <- struct{}{}
			}()
		}
		return b.awaitWaiters(kind, n.waiters)
	})
	if err != nil {
		return err
	}
	into.memory = u.mem.per(float64(n.waiters))
	u, took, err := b.spend(false, rest(n.waitFor))
	into.PerSecond = u.per(float64(n.waiters) * took.Seconds())
	err = errors.Join(err, b.lost())
	if len(done) > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d waiters did not wait", len(done), n.waiters))
	}
	return err
}

// awaitWaiters waits until so many waiters stand in queues, or have subscribed.
func (b *bed) awaitWaiters(kind string, n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		time.Sleep(200 * time.Millisecond)
		keys, err := b.Nodes[0].DBSize(ctx).Result()
		if err != nil {
			return err
		}
		channels, err := b.Nodes[0].PubSubChannels(ctx, "redisson_lock__channel:*").Result()
		if err != nil {
			return err
		}
		// Each name has a lock and a fence, and each queue two keys.
		if kind == "fair" && keys >= int64(4*n) || kind == "plain" && len(channels) >= n {
			return nil
		}
	}
	return fmt.Errorf("not all of %d waiters came: %w", n, ctx.Err())
}

func clusterTurn(nodes int, n sizes) (load, error) {
	b, err := newBed(nodes, 1)
	if err != nil {
		return load{}, err
	}
	defer b.end()
	return b.turns(n.turns, ownName)
}

// measureCluster fits the cost of a turn to two sizes of a cluster, and checks it with a third.
func (r *results) measureCluster(n sizes) error {
	few, err := clusterTurn(2, n)
	if err != nil {
		return err
	}
	many, err := clusterTurn(n.nodes, n)
	if err != nil {
		return err
	}
	between, err := clusterTurn(n.atNodes, n)
	if err != nil {
		return err
	}
	c := &r.Costs
	c.Broadcast = (many.Server - few.Server) / float64(n.nodes-2)
	c.Cluster = load{few.Server - c.Broadcast, between.Client}
	r.Checks = append(r.Checks, check{
		fmt.Sprintf("a lock and an unlock on %d masters", n.atNodes), "µs of the servers",
		c.turn(n.atNodes), between.Server,
	})
	return nil
}

// measureMessages measures how long a message takes in a cluster.
func (r *results) measureMessages(n sizes) error {
	b, err := newBed(3, 0)
	if err != nil {
		return err
	}
	defer b.end()
	for i, into := range []*latency{&r.Costs.Near, &r.Costs.Far} {
		if *into, err = messages(b.Nodes[0], b.Nodes[i], n.messages); err != nil {
			return err
		}
	}
	return nil
}

func messages(from, to *redis.Client, n int) (l latency, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sub := to.Subscribe(ctx, "scale")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		return l, err
	}
	var took []float64
	for i := range n {
		begun := time.Now()
		if err := from.Publish(ctx, "scale", i).Err(); err != nil {
			return l, err
		}
		if _, err := sub.ReceiveMessage(ctx); err != nil {
			return l, err
		}
		took = append(took, time.Since(begun).Seconds()*1e3)
		time.Sleep(time.Duration(i%10) * time.Millisecond)
	}
	slices.Sort(took)
	return latency{took[n/2], took[n*99/100]}, nil
}

// checkRenewals holds as many locks as two cores can renew, in 16 clients on three masters.
func (r *results) checkRenewals(n sizes) error {
	b, err := newBed(3, 16, redlatch.WithLease(n.manyLease))
	if err != nil {
		return err
	}
	defer b.end()
	if _, err := b.hold(n.manyHeld); err != nil {
		return err
	}
	u, took, err := b.spend(false, rest(n.manyLease/3)) // in which each is renewed once
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s held locks of %s in 16 clients on 3 masters", page.Thousands(float64(n.manyHeld)), n.manyLease)
	each := float64(n.manyHeld) / took.Seconds()
	r.Checks = append(r.Checks,
		check{what, "cores of the servers", r.Costs.ClusterRenewal.Server * each / 1e6, u.Server / 1e6 / took.Seconds()},
		check{what, "cores of the clients", r.Costs.ClusterRenewal.Client * each / 1e6, u.Client / 1e6 / took.Seconds()},
	)
	return b.lost()
}

// checkMemory holds more locks, without a renewal.
func (r *results) checkMemory(n sizes) error {
	b, err := newBed(3, 16, redlatch.WithLease(time.Hour))
	if err != nil {
		return err
	}
	defer b.Stop() // the program ends, and the clients with it
	mem, err := b.hold(n.mostHeld)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s held locks of an hour in 16 clients on 3 masters", page.Thousands(float64(n.mostHeld)))
	each := float64(n.mostHeld) / 1e6
	r.Checks = append(r.Checks,
		check{what, "MB of the servers", each * (r.Costs.Hold.Server + r.Costs.Fence.Server), mem.Server / 1e6},
		check{what, "MB of the clients", each * r.Costs.Hold.Client, mem.Client / 1e6},
	)
	return b.lost()
}
