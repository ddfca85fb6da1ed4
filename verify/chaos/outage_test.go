//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/workload"
)

// outageRows: how long waiters wait, and which holds are lost, if a part of a cluster fails. Faults
// of connections and scripts happen meanwhile on the rest of it.
func (p primitive) outageRows() (rows []row) {
	for _, f := range masterFaults {
		rows = append(rows, row{
			name:   p.name + ": cluster, " + f.name,
			target: fmt.Sprintf("%d of %d waiters served within 2 s of %s, no hold lost", f.rounds*f.locks(), f.rounds*f.locks(), f.since()),
			timed:  true,
			run:    func(c *course) { c.failingMasters(p, f) },
		})
	}
	return append(rows, row{
		name:   p.name + ": cluster, a master hangs",
		target: "0 of 2,000 holds of the other masters lost in two leases",
		timed:  true,
		run:    func(c *course) { c.hungMaster(p) },
	}, row{
		name:   p.name + ": cluster, hidden from the client",
		target: "0 of 3,000 holds lost in ten leases",
		alone:  true, // the leases of so many holds are short, so other rows must not keep the processors busy
		run:    func(c *course) { c.hiddenCluster(p) },
	}, row{
		name:   p.name + ": cluster, the node of the messages leaves",
		target: "5 of 5 waiters woken again within 5 s of when an operator begins to remove it",
		timed:  true,
		run:    func(c *course) { c.deaf(p, leavingNode) },
	}, row{
		name:   p.name + ": Sentinel, the old master goes on",
		target: "5 of 5 waiters woken again within 5 s of the promotion",
		timed:  true,
		run:    func(c *course) { c.deaf(p, oldMaster) },
	})
}

// mixture is the faults that happen beside the fault of a row.
type mixture struct {
	course *course
	nodes  []*trouble
}

// mix has nodes cut connections of the library, and forget scripts, again and again. They keep the
// connections for messages: a client whose subscriber is cut again and again pauses for seconds.
func (c *course) mix(nodes ...*redistest.Server) mixture {
	m := mixture{course: c}
	both := fault{gap: 100 * time.Millisecond, blow: func(s *stand) int { return cutting(s) + flushingScripts(s) }}
	for _, node := range nodes {
		m.nodes = append(m.nodes, both.begin(&stand{course: c, server: node}))
	}
	return m
}

// cutting closes the connections that sent scripts. Unlike killing, it leaves those of the
// operator.
func cutting(s *stand) (cut int) {
	all, _ := s.server.Control().Do(context.Background(), "CLIENT", "LIST", "TYPE", "normal").Text()
	for line := range strings.Lines(all) {
		id, rest, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
		if strings.Contains(rest, " cmd=eval") {
			n, _ := s.server.Control().Do(context.Background(), "CLIENT", "KILL", "ID", id).Int()
			cut += n
		}
	}
	return cut
}

// end ends the faults, and counts them.
func (m mixture) end() {
	for _, t := range m.nodes {
		t.end()
		m.course.bit("connections cut and scripts forgotten beside it", t.bitten())
	}
}

// masterFault is the failure of the first masters of three.
type masterFault struct {
	name   string
	fail   func(*redistest.Server)
	failed int
	rounds int
}

var masterFaults = []masterFault{
	{"master killed", (*redistest.Server).Kill, 1, 20},
	{"master stopped", (*redistest.Server).Pause, 1, 5},
	{"two masters killed", (*redistest.Server).Kill, 2, 5},
}

// locks is the number of locks in each round. If most masters fail, the others serve nobody either.
func (f masterFault) locks() int {
	if f.failed > 1 {
		return 3
	}
	return 1
}

// since is what the waiters count from.
func (f masterFault) since() string {
	if f.failed > 1 {
		return "when the cluster was up again"
	}
	return "the promotion"
}

// shardOf returns which of three masters has the slot of a name at first.
func shardOf(name string) int { return (3*(key.Slot(name)+1) - 1) / 16384 }

// namesOf returns n names of a master.
func namesOf(shard, n int, what string) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprintf("%s %d", what, i); shardOf(name) == shard {
			names = append(names, name)
		}
	}
	return names
}

// failingMasters has masters fail whose locks are held, and for which somebody waits.
func (c *course) failingMasters(p primitive, f masterFault) {
	var took []time.Duration
	rounds := c.of(f.rounds, 5)
	for round := range rounds {
		s := c.clusterStand(3, 1)
		holder, waiter := s.client(redlatch.WithLease(time.Minute)), s.client(redlatch.WithLease(time.Minute))
		var names []string
		var holds []workload.Hold
		for shard := range f.locks() {
			name := namesOf(shard, 1, fmt.Sprint("failing ", round))[0]
			h, err := p.lock(holder, name).Lock(context.Background())
			if err != nil {
				c.miss("before any fault: %v", err)
				return
			}
			names, holds = append(names, name), append(holds, h)
		}
		waiting := s.wait(p, waiter, names)
		time.Sleep(500 * time.Millisecond) // the replicas have all of it
		also := s.mix(s.bed.Nodes[f.failed:3]...)
		busy := s.use(p, holder, namesOf(2, 1, "busy")[0])
		for _, master := range s.bed.Nodes[:f.failed] {
			f.fail(master)
		}
		if f.failed > 1 { // nobody can elect another master, so an operator makes some
			time.Sleep(5 * time.Second)
			for _, replica := range s.bed.Nodes[3 : 3+f.failed] {
				c.ifBroken(replica.Control().Do(context.Background(), "CLUSTER", "FAILOVER", "TAKEOVER").Err())
			}
		}
		promoted, ok := s.promoted(f.failed)
		if !ok {
			c.miss("no replica was promoted")
			return
		}
		c.bit("promotions", f.failed)
		var all sync.WaitGroup
		for _, h := range holds {
			all.Go(func() {
				if err := h.Unlock(context.Background()); err != nil {
					c.Log(err)
					c.forbid("holds lost", 1)
				}
			})
		}
		since := make([]time.Time, len(names))
		for i := range since {
			since[i] = promoted
		}
		took = append(took, waiting(since)...)
		all.Wait()
		busy()
		also.end()
		for _, master := range s.bed.Nodes[:f.failed] {
			master.Kill() // ends what go-redis waits for
		}
		s.end()
	}
	c.forbid("holds lost", 0)
	c.enough("waiters", len(took), rounds*f.locks())
	c.within("served after "+f.since(), took, 100, 2*time.Second)
}

// use locks and unlocks a name until end. No call may fail, whatever happens to its node.
func (s *clusterStand) use(p primitive, locks *redlatch.Client, name string) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() {
		for ctx.Err() == nil {
			h, err := p.lock(locks, name).Lock(ctx)
			if err == nil {
				err = h.Unlock(context.Background())
			}
			if err != nil && ctx.Err() == nil {
				s.Log(err)
				s.forbid("calls failed", 1)
			}
			time.Sleep(time.Millisecond)
		}
	})
	return func() {
		cancel()
		g.Wait()
		s.forbid("calls failed", 0)
	}
}

// promoted waits until so many replicas are masters, and returns when that was. If most masters had
// failed, it waits until the cluster is up.
func (s *clusterStand) promoted(n int) (at time.Time, ok bool) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		masters := 0
		for _, node := range s.bed.Nodes[3:] {
			if isMaster(node) && (n == 1 || isUp(node)) {
				masters++
			}
		}
		if masters == n && (n == 1 || isUp(s.bed.Nodes[2])) {
			return time.Now(), true
		}
	}
	return time.Time{}, false
}

func isUp(node *redistest.Server) bool {
	info, err := node.Control().ClusterInfo(context.Background()).Result()
	return err == nil && strings.Contains(info, "cluster_state:ok")
}

// hungMaster stops one of three masters for two leases. Some of its own holds have longer leases,
// so the client goes on to send their renewals.
func (c *course) hungMaster(p primitive) {
	const lease = 6 * time.Second
	s := c.clusterStand(3, 0, "--cluster-node-timeout", "60000")
	locks := s.client(redlatch.WithLease(lease), redlatch.WithRenewInterval(lease/3))
	longer := redlatch.WithLease(time.Minute)
	stopped := c.holdAll(p, locks, namesOf(0, c.of(500, 20), "short"))
	defer runtime.KeepAlive(c.holdAll(p, locks, namesOf(0, c.of(2500, 100), "long"), longer))
	var others []workload.Hold
	for shard := 1; shard < 3; shard++ {
		others = append(others, c.holdAll(p, locks, namesOf(shard, c.of(1000, 40), "other"))...)
	}
	time.Sleep(lease / 2) // each hold has been renewed, so the client knows the nodes
	also := s.mix(s.bed.Nodes[1:]...)
	s.bed.Nodes[0].Pause()
	time.Sleep(2 * lease)
	c.bit("holds of the master lost", gone(stopped))
	c.forbid("holds of the others lost", gone(others))
	c.enough("holds of the others", len(others), c.of(2000, 80))
	also.end()
	s.bed.Nodes[0].Kill()
	s.end()
}

// holdAll locks names, many at a time.
func (c *course) holdAll(p primitive, locks *redlatch.Client, names []string, options ...redlatch.LockOption) []workload.Hold {
	holds := make([]workload.Hold, len(names))
	var all errgroup.Group
	all.SetLimit(64)
	for i, name := range names {
		all.Go(func() (err error) {
			holds[i], err = p.lock(locks, name, options...).Lock(context.Background())
			return err
		})
	}
	require.NoError(c, all.Wait())
	return holds
}

// gone counts the holds that were lost.
func gone(holds []workload.Hold) (n int) {
	for _, h := range holds {
		select {
		case <-h.Lost():
			n++
		default:
		}
	}
	return n
}

// hidden hides the client of a cluster, as a wrapper does that adds tracing.
type hidden struct {
	redis.UniversalClient // nil

	process   func(ctx context.Context, cmd redis.Cmder) error
	subscribe func(ctx context.Context, channels ...string) *redis.PubSub
}

func (h hidden) Process(ctx context.Context, cmd redis.Cmder) error { return h.process(ctx, cmd) }

func (h hidden) Close() error { return nil }

func (h hidden) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return h.subscribe(ctx, channels...)
}

// hiddenCluster has holds of all slots. The client does not see that its server belongs to a
// cluster: a wrapper hides it, or it is a client for one server.
func (c *course) hiddenCluster(p primitive) {
	const lease = 2 * time.Second
	three, one := c.clusterStand(3, 0), c.clusterStand(1, 0)
	rdb := three.bed.Client(c.T)
	plain := one.bed.Nodes[0].Client(c.T)
	also := c.mix(slices.Concat(one.bed.Nodes, three.bed.Nodes)...)
	var holds []workload.Hold
	for what, locks := range map[string]*redlatch.Client{
		"wrapped": three.on(hidden{process: rdb.Process, subscribe: rdb.Subscribe}, redlatch.WithLease(lease)),
		"plain":   one.on(plain, redlatch.WithLease(lease)),
	} {
		var names []string
		for i := range c.of(1500, 30) {
			names = append(names, fmt.Sprint(what, " ", i))
		}
		holds = append(holds, c.holdAll(p, locks, names)...)
	}
	time.Sleep(time.Duration(c.of(10, 3)) * lease)
	also.end()
	c.forbid("holds lost", gone(holds))
	c.enough("holds", len(holds), c.of(3000, 60))
	for what, s := range map[string]*clusterStand{"wrapped": three, "plain": one} {
		c.bit("commands of several slots refused, "+what, s.refusals("CROSSSLOT"))
	}
	var all errgroup.Group
	all.SetLimit(64)
	for _, h := range holds {
		all.Go(func() error { c.ifBroken(h.Unlock(context.Background())); return nil })
	}
	_ = all.Wait()
}

// deafness is a server that goes on to answer its clients, and gets no messages any more.
type deafness struct {
	client func(s *stand, options ...redlatch.Option) *redlatch.Client
	server *redistest.Server          // has the connection for messages
	first  string                     // a lock of that server
	name   string                     // a lock that outlasts the fault
	begin  func() (at time.Time)      // of the fault; returns when all commands go to the others
	all    func() []*redistest.Server // that have or get the lock, or the connection
	mix    func() mixture
}

// leavingNode is a master that leaves its cluster, and goes on alone.
func leavingNode(c *course) *deafness {
	s := c.clusterStand(3, 0)
	third := s.bed.Nodes[2]
	return &deafness{
		client: func(at *stand, options ...redlatch.Option) *redlatch.Client {
			return at.on(s.bed.Client(c.T), options...)
		},
		server: third, first: namesOf(2, 1, "first")[0], name: namesOf(0, 1, "deaf")[0],
		begin: func() time.Time {
			began := time.Now()
			s.bed.Remove(c.T, third)
			c.bit("nodes left", 1)
			return began
		},
		all: func() []*redistest.Server { return s.bed.Nodes },
		mix: func() mixture { return s.mix(s.bed.Nodes...) },
	}
}

// oldMaster is a master that the sentinels cannot reach, and all others can.
func oldMaster(c *course) *deafness {
	bed := redistest.StartWatched(c.T)
	old, next := &stand{course: c, server: bed.Master}, bed.Replicas[0]
	for _, s := range slices.Concat(bed.Replicas, []*redistest.Server{bed.Master}) {
		(&stand{course: c, server: s}).operate("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all")
	}
	serving := []*redistest.Server{bed.Master}
	var clients []*redis.Client
	return &deafness{
		client: func(at *stand, options ...redlatch.Option) *redlatch.Client {
			rdb := bed.Client(c.T, func(o *redis.FailoverOptions) { o.Username, o.Password = "app", "secret" })
			clients = append(clients, rdb)
			return at.on(rdb, options...)
		},
		server: bed.Master, first: "first", name: "deaf",
		begin: func() time.Time {
			old.operate("ACL", "SETUSER", "default", "-@all")
			c.await("a promotion", func() bool { return isMaster(next) })
			promoted := time.Now()
			c.bit("promotions", 1)
			serving[0] = next
			// The sentinels announce the new master later. Until then, all go on with the old one.
			moved := func(rdb *redis.Client) bool {
				info, err := rdb.Info(context.Background(), "server").Result()
				return err == nil && strings.Contains(info, next.RunID())
			}
			c.await("the first client of the new master", func() bool { return slices.ContainsFunc(clients, moved) })
			c.figure("commands went there %s after the promotion", ms(time.Since(promoted)))
			for _, rdb := range clients {
				c.await("the new master", func() bool { return moved(rdb) })
			}
			return promoted
		},
		all: func() []*redistest.Server { return serving },
		mix: func() mixture { return mixture{} }, // the sentinels need their connections
	}
}

// deaf has the server of the connection for messages go on without messages. The first message is
// lost. The waiter gets the lock when its client has another connection, and a message wakes the
// next one.
func (c *course) deaf(p primitive, of func(c *course) *deafness) {
	var again, later []time.Duration
	rounds := c.of(5, 3)
	for range rounds {
		d := of(c)
		s := &stand{course: c, server: d.server}
		lease := redlatch.WithLease(10 * time.Minute)
		holder := d.client(s, lease)
		waiter := d.client(s, lease, redlatch.WithPollInterval(time.Minute), redlatch.WithHeartbeat(3*time.Minute))
		echoes := d.server.Control().PSubscribe(context.Background(), "*redlatch-echo:*")
		_, err := echoes.Receive(context.Background())
		require.NoError(c, err)
		_, err = holder.Mutex(d.first).Lock(context.Background())
		require.NoError(c, err)
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		all.Go(func() { _, _ = waiter.Mutex(d.first).Lock(ctx) })
		c.await("the connection", func() bool { return subscribers(d.server, key.ForMutex(d.first).Channel) })
		// handedOver releases a lock for which somebody waits, after then. It returns how long
		// after the time that then returns the waiter was served.
		handedOver := func(then func() time.Time) time.Duration {
			h, err := p.lock(holder, d.name).Lock(context.Background())
			require.NoError(c, err)
			waiting := s.wait(p, waiter, []string{d.name})
			c.await("a waiter", func() bool { return p.waitsFor(d.name, slices.Concat(d.all(), []*redistest.Server{d.server})) })
			since := then()
			c.ifBroken(h.Unlock(context.Background()))
			return waiting([]time.Time{since})[0]
		}
		var also mixture
		again = append(again, handedOver(func() time.Time {
			_, err := echoes.ReceiveTimeout(context.Background(), 20*time.Second) // a client that has had none does not judge its connection
			require.NoError(c, err)
			_ = echoes.Close()
			time.Sleep(500 * time.Millisecond) // replicas have all of it
			at := d.begin()
			also = d.mix()
			return at
		}))
		later = append(later, handedOver(time.Now))
		also.end()
		cancel()
		all.Wait()
		s.end()
	}
	c.within("woken again after", again, 100, 5*time.Second)
	c.within("the next after", later, 100, time.Second)
	c.enough("waiters", len(again), rounds)
}

// waitsFor reports whether one of the servers has a subscriber of a lock, and the lock a waiter.
func (p primitive) waitsFor(name string, servers []*redistest.Server) bool {
	channel, queue := key.ClientPrefix+"*", key.ForMutex(name).Queue
	switch p.name {
	case "mutex":
		channel, queue = key.ForMutex(name).Channel, ""
	case permits.name:
		queue = key.ForSemaphore(name).Queue
	}
	return slices.ContainsFunc(servers, func(s *redistest.Server) bool { return subscribers(s, channel) }) &&
		(queue == "" || slices.ContainsFunc(servers, func(s *redistest.Server) bool {
			return s.Control().ZCard(context.Background(), queue).Val() > 0
		}))
}

func subscribers(s *redistest.Server, pattern string) bool {
	return len(s.Control().PubSubChannels(context.Background(), pattern).Val()) > 0
}

// await waits for a condition that comes soon.
func (c *course) await(what string, holds func() bool) {
	c.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("waited in vain for %s", what)
		}
	}
}
