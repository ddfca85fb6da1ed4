//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// clusterRows: faults of a cluster. In the histories, no write is lost, so nothing expires and nothing is
// forgotten.
func (p primitive) clusterRows() (rows []row) {
	for _, f := range clusterTroubles {
		rows = append(rows, row{
			name:   fmt.Sprintf("%s: cluster, %s", p.name, f.name),
			target: "40 histories × 4 clients × ≥ 200 operations: 0 illegal, 0 unknown",
			run:    func(c *course) { c.clusterHistories(p, f) },
		})
	}
	return append(rows, row{
		name:   p.name + ": cluster, master killed",
		target: "20 of 20 waiters served within 2 s of the promotion, no hold lost",
		timed:  true,
		run:    func(c *course) { c.killedMasters(p) },
	})
}

// clusterFault is a trouble of the node that has a lock. A blow returns how often the nodes noticed.
type clusterFault struct {
	name, bites string
	masters     int
	replicas    int
	gap         time.Duration
	blow        func(s *clusterStand, name string) (bites int)
}

var clusterTroubles = []clusterFault{
	{name: "the slot migrates to and fro", bites: "commands that no node could run", masters: 2, gap: 50 * time.Millisecond, blow: (*clusterStand).migrate},
	{name: "replicas take over", bites: "promotions", masters: 3, replicas: 1, gap: 500 * time.Millisecond, blow: (*clusterStand).takeOver},
	{name: "a master stops for a while", bites: "stops", masters: 3, gap: 300 * time.Millisecond, blow: (*clusterStand).stop},
}

// clusterStand has a cluster for one row, and clients of the library.
type clusterStand struct {
	*stand
	bed *redistest.Cluster
}

func (c *course) clusterStand(masters, replicas int) *clusterStand {
	c.Helper()
	bed := redistest.StartCluster(c.T, masters, replicas, "--cluster-node-timeout", "2000")
	return &clusterStand{stand: &stand{course: c, server: bed.Nodes[0]}, bed: bed}
}

func (s *clusterStand) client(options ...redlatch.Option) *redlatch.Client {
	s.Helper()
	rdb := s.bed.Client(s.T, func(o *redis.ClusterOptions) {
		o.ReadTimeout = 200 * time.Millisecond
		o.Addrs = nil
		for _, node := range s.bed.Nodes {
			o.Addrs = append(o.Addrs, node.Addr())
		}
	})
	return s.on(rdb, options...)
}

// clusterHistories lets clients contend for a lock while its node is in trouble, and judges each history.
func (c *course) clusterHistories(p primitive, f clusterFault) {
	want := c.of(40, 2)
	s := c.clusterStand(f.masters, f.replicas)
	made, bitten := meet(want, func(n int) int { return s.history(p, f, historyName(n)) })
	c.count("histories", made)
	c.enough("of them that met it", bitten, want)
}

func (s *clusterStand) history(p primitive, f clusterFault, name string) (bites int) {
	defer s.end()
	var clients []*redlatch.Client
	for range 4 {
		clients = append(clients, s.client(redlatch.WithLease(10*time.Minute), redlatch.WithPollInterval(poll)))
	}
	wrote := p.protected()
	t := fault{gap: f.gap, blow: func(*stand) int { return f.blow(s, name) }}.begin(s.stand)
	h, ended := contend(p, clients, name, wrote)
	t.end()
	s.bit(f.bites, t.bitten())
	s.settled("locks", 0, func() int { return s.lockKeys(name) })
	if !p.fenced() {
		s.never("not whole again", whole(s.client(), name))
	}
	if ended {
		s.judge(p, h, wrote)
	} else {
		s.forbid("not ended", 1)
	}
	return t.bitten()
}

// lockKeys counts the keys of all masters. A release whose two keys are on two nodes leaves the description of
// a permit behind, until the client repeats it.
func (s *clusterStand) lockKeys(names string) (n int) {
	for _, node := range s.bed.Nodes {
		if !s.isMaster(node) {
			continue
		}
		n += (&stand{course: s.course, server: node}).lockKeys(names)
		described, err := node.Control().Keys(context.Background(), "redlatch:holders:*"+names+"*").Result()
		s.ifBroken(err)
		for _, k := range described {
			if node.Control().PTTL(context.Background(), k).Val() > 0 {
				n--
			}
		}
	}
	return n
}

func (s *clusterStand) isMaster(node *redistest.Server) bool {
	info, err := node.Control().Info(context.Background(), "replication").Result()
	return err == nil && strings.Contains(info, "role:master")
}

// owner is the master that has the slot of a name.
func (s *clusterStand) owner(name string) *redistest.Server {
	s.Helper()
	ctx := context.Background()
	all := redis.NewClusterSlotsCmd(ctx, "cluster", "slots") // Redis 6.2 has no other
	require.NoError(s, s.bed.Nodes[0].Control().Process(ctx, all))
	for _, r := range all.Val() {
		if slot := key.Slot(name); slot >= r.Start && slot <= r.End {
			for _, node := range s.bed.Nodes {
				if node.Addr() == r.Nodes[0].Addr {
					return node
				}
			}
		}
	}
	s.Fatalf("no node has the slot of %s", name)
	return nil
}

// migrate moves the slot of a name to the other master, key by key, and slowly.
func (s *clusterStand) migrate(name string) (bites int) {
	ctx := context.Background()
	source := s.owner(name)
	target := s.bed.Nodes[0]
	if target == source {
		target = s.bed.Nodes[1]
	}
	slot := key.Slot(name)
	set := func(node *redistest.Server, state string, of *redistest.Server) {
		id, err := of.Control().Do(ctx, "CLUSTER", "MYID").Text()
		s.ifBroken(err)
		s.ifBroken(node.Control().Do(ctx, "CLUSTER", "SETSLOT", slot, state, id).Err())
	}
	before := s.refused()
	set(target, "IMPORTING", source)
	set(source, "MIGRATING", target)
	host, port, _ := net.SplitHostPort(target.Addr())
	for {
		keys, err := source.Control().ClusterGetKeysInSlot(ctx, slot, 1).Result()
		s.ifBroken(err)
		if len(keys) == 0 {
			break
		}
		time.Sleep(rand.N(10 * time.Millisecond))
		s.ifBroken(source.Control().Do(ctx, "MIGRATE", host, port, keys[0], 0, 10_000).Err())
	}
	time.Sleep(rand.N(10 * time.Millisecond))
	set(target, "NODE", target)
	set(source, "NODE", target)
	return s.refused() - before
}

// refused is how many commands the nodes answered with TRYAGAIN.
func (s *clusterStand) refused() (n int) {
	for _, node := range s.bed.Nodes {
		n += (&stand{course: s.course, server: node}).refusals("TRYAGAIN")
	}
	return n
}

// takeOver has a replica take over from the master of a name, which loses no write.
func (s *clusterStand) takeOver(name string) (bites int) {
	ctx := context.Background()
	master := s.owner(name)
	id, err := master.Control().Do(ctx, "CLUSTER", "MYID").Text()
	s.ifBroken(err)
	for _, node := range s.bed.Nodes {
		own, err := node.Control().Do(ctx, "CLUSTER", "NODES").Text()
		s.ifBroken(err)
		if !strings.Contains(own, "myself,slave "+id) {
			continue
		}
		if node.Control().Do(ctx, "CLUSTER", "FAILOVER").Err() != nil {
			return 0 // its link to the master is not up yet
		}
		for range 500 {
			if s.isMaster(node) {
				return 1
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return 0
}

// stop stops the master of a name for less than the time after which the cluster notices.
func (s *clusterStand) stop(name string) (bites int) {
	node := s.owner(name)
	node.Pause()
	time.Sleep(rand.N(500 * time.Millisecond))
	node.Resume()
	return 1
}

// killedMasters kills the master of a lock that is held, and for which somebody waits.
func (c *course) killedMasters(p primitive) {
	var took []time.Duration
	for round := range c.of(20, 5) {
		s := c.clusterStand(3, 1)
		name := fmt.Sprint("killed master ", round)
		holder, waiter := s.client(redlatch.WithLease(time.Minute)), s.client(redlatch.WithLease(time.Minute))
		h, err := p.lock(holder, name).Lock(context.Background())
		if err != nil {
			c.miss("before any fault: %v", err)
			return
		}
		waiting := s.wait(p, waiter, []string{name})
		time.Sleep(500 * time.Millisecond) // the replica has all of it
		before := s.owner(name)
		before.Kill()
		var promoted time.Time
		for end := time.Now().Add(20 * time.Second); promoted.IsZero() && time.Now().Before(end); time.Sleep(time.Millisecond) {
			for _, node := range s.bed.Nodes[3:] {
				if s.isMaster(node) {
					promoted = time.Now()
				}
			}
		}
		if promoted.IsZero() {
			c.miss("no replica was promoted")
			return
		}
		c.bit("promotions", 1)
		if err := h.Unlock(context.Background()); err != nil {
			c.forbid("holds lost", 1)
		}
		took = append(took, waiting([]time.Time{promoted})...)
		s.end()
	}
	c.forbid("holds lost", 0)
	c.within("served after the promotion", took, 100, 2*time.Second)
}
