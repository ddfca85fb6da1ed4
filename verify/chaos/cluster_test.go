//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// clusterRows: faults of a cluster. In the histories, no write is lost, so nothing expires and
// nothing is forgotten.
func (p primitive) clusterRows() (rows []row) {
	for _, f := range clusterTroubles {
		rows = append(rows, row{
			name:   fmt.Sprintf("%s: cluster, %s", p.name, f.name),
			target: "40 histories × 4 clients × ≥ 200 operations: 0 illegal, 0 unknown",
			run:    func(c *course) { c.clusterHistories(p, f) },
		})
	}
	return append(rows, p.outageRows()...)
}

// clusterFault is a trouble of the node that has a lock. A blow returns how often the nodes
// noticed.
type clusterFault struct {
	name, bites string
	masters     int
	replicas    int
	args        []string // for the nodes
	mixed       bool     // faults of connections and scripts happen meanwhile, and calls without a deadline
	gap         time.Duration
	heartbeat   time.Duration                      // if the fault lasts longer than others
	before      func(s *clusterStand, name string) // makes the history of a name wait, if it must
	blow        func(s *clusterStand, name string) (bites int)
}

var clusterTroubles = []clusterFault{
	{name: "the slot migrates to and fro", bites: "commands that no node could run", masters: 2, gap: 50 * time.Millisecond, blow: (*clusterStand).migrate},
	{name: "replicas take over", bites: "promotions", masters: 3, replicas: 1, gap: 500 * time.Millisecond, before: (*clusterStand).rest, blow: (*clusterStand).takeOver},
	{name: "a master stops for a while", bites: "stops", masters: 3, gap: 300 * time.Millisecond, blow: (*clusterStand).stop},
	{name: "the slot is stuck between two masters", bites: "commands that no node could run", masters: 2, mixed: true,
		gap: 300 * time.Millisecond, heartbeat: 6 * time.Second, blow: (*clusterStand).stick},
	{name: "the cluster is down, and answers reads", bites: "writes of scripts refused", masters: 1, mixed: true,
		args: []string{"--cluster-allow-reads-when-down", "yes"}, gap: 300 * time.Millisecond, blow: (*clusterStand).uncover},
}

// clusterStand has a cluster for one row, and clients of the library.
type clusterStand struct {
	*stand
	bed     *redistest.Cluster
	elected map[*redistest.Server]time.Time // when we last asked a replica to take over
}

func (c *course) clusterStand(masters, replicas int, args ...string) *clusterStand {
	c.Helper()
	bed := redistest.StartCluster(c.T, masters, replicas, append([]string{"--cluster-node-timeout", strconv.FormatInt(nodeTimeout.Milliseconds(), 10)}, args...)...)
	return &clusterStand{stand: &stand{course: c, server: bed.Nodes[0]}, bed: bed, elected: map[*redistest.Server]time.Time{}}
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

// clusterHistories lets clients contend for a lock while its node is in trouble, and judges each
// history.
func (c *course) clusterHistories(p primitive, f clusterFault) {
	want := c.of(40, 2)
	s := c.clusterStand(f.masters, f.replicas, f.args...)
	made, bitten := meet(want, func(n int) int { return s.history(p, f, historyName(n)) })
	c.count("histories", made)
	c.enough("of them that met it", bitten, want)
}

func (s *clusterStand) history(p primitive, f clusterFault, name string) (bites int) {
	defer s.end()
	if f.before != nil {
		f.before(s, name)
	}
	var clients []*redlatch.Client
	for range 4 {
		clients = append(clients, s.client(redlatch.WithLease(10*time.Minute), redlatch.WithPollInterval(poll),
			redlatch.WithHeartbeat(max(heartbeat, f.heartbeat))))
	}
	wrote := p.protected()
	t := fault{gap: f.gap, blow: func(*stand) int { return f.blow(s, name) }}.begin(s.stand)
	also, unused := mixture{}, func() {}
	if f.mixed {
		also = s.mix(s.bed.Nodes...)
		unused = s.use(p, clients[0], "{"+name+"}:") // of the same slot
	}
	h, ended := contend(p, clients, name, wrote)
	unused()
	also.end()
	t.end()
	s.bit(f.bites, t.bitten())
	if !ended { // its actors may have left holds
		s.forbid("not ended", 1)
		return t.bitten()
	}
	s.settled("locks", 0, func() int { return s.lockKeys(name) })
	if !p.fenced() {
		s.never("not whole again", whole(s.client(), name))
	}
	s.judge(p, h, wrote)
	return t.bitten()
}

// lockKeys counts the keys of all masters. A release whose two keys are on two nodes leaves the
// description of a permit behind, until the client repeats it.
func (s *clusterStand) lockKeys(names string) (n int) {
	for _, node := range s.bed.Nodes {
		if !isMaster(node) {
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

func isMaster(node *redistest.Server) bool {
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
	return s.move(name, func(int) { time.Sleep(rand.N(10 * time.Millisecond)) })
}

// stick is migrate, but the migration stops for a while. By then, none, some or all of the keys
// have moved.
func (s *clusterStand) stick(name string) (bites int) {
	at := rand.N(4)
	return s.move(name, func(moved int) {
		if moved == at {
			time.Sleep(500*time.Millisecond + rand.N(500*time.Millisecond))
		}
	})
}

// move moves the slot of a name to the other master, key by key. It calls pause before each key,
// and before the end.
func (s *clusterStand) move(name string, pause func(moved int)) (bites int) {
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
	before := s.refusals("TRYAGAIN")
	set(target, "IMPORTING", source)
	set(source, "MIGRATING", target)
	host, port, _ := net.SplitHostPort(target.Addr())
	for moved := 0; ; moved++ {
		pause(moved)
		keys, err := source.Control().ClusterGetKeysInSlot(ctx, slot, 1).Result()
		s.ifBroken(err)
		if len(keys) == 0 {
			break
		}
		s.ifBroken(source.Control().Do(ctx, "MIGRATE", host, port, keys[0], 0, 10_000).Err())
	}
	set(target, "NODE", target)
	set(source, "NODE", target)
	return s.refusals("TRYAGAIN") - before
}

// refusals is how many commands the nodes answered with an error of that code.
func (s *clusterStand) refusals(code string) (n int) {
	for _, node := range s.bed.Nodes {
		n += (&stand{course: s.course, server: node}).refusals(code)
	}
	return n
}

// uncover takes a slot from a cluster of one node for a while, so the cluster is down. It is not
// the slot of any lock.
func (s *clusterStand) uncover(string) (bites int) {
	const slot = 16383
	ctx, node := context.Background(), s.bed.Nodes[0].Control()
	before := s.refusals("ERR") // so Redis counts a write that a script may not do
	s.ifBroken(node.ClusterDelSlots(ctx, slot).Err())
	time.Sleep(50*time.Millisecond + rand.N(100*time.Millisecond))
	s.ifBroken(node.ClusterAddSlots(ctx, slot).Err())
	return s.refusals("ERR") - before
}

const nodeTimeout = 2 * time.Second

// restOfReplica is how long a replica of Redis 7.0 must not take over again (cluster.c,
// clusterHandleSlaveFailover). If it is asked within twice the node timeout, it takes the votes of
// its last election, and the epoch. So it accepts writes as a master that nobody follows, until it
// hears of the true one, and then they are lost. If it is asked within four times the node timeout,
// the failover times out, and the master takes no write for five seconds.
const restOfReplica = 4*nodeTimeout + time.Second

// rest waits until the replica of a name may take over.
func (s *clusterStand) rest(name string) {
	time.Sleep(time.Until(s.elected[s.replicaOf(name)].Add(restOfReplica)))
}

// takeOver has the replica take over from the master of a name, which loses no write.
func (s *clusterStand) takeOver(name string) (bites int) {
	replica := s.replicaOf(name)
	if replica == nil || time.Since(s.elected[replica]) < restOfReplica {
		return 0
	}
	if replica.Control().Do(context.Background(), "CLUSTER", "FAILOVER").Err() != nil {
		return 0 // it does not hear its master yet
	}
	s.elected[replica] = time.Now()
	for time.Since(s.elected[replica]) < 5*time.Second { // CLUSTER_MF_TIMEOUT
		if isMaster(replica) {
			return 1
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 0
}

// replicaOf is the replica of the master of a name, or nil while it is not known.
func (s *clusterStand) replicaOf(name string) *redistest.Server {
	ctx := context.Background()
	id, err := s.owner(name).Control().Do(ctx, "CLUSTER", "MYID").Text()
	s.ifBroken(err)
	for _, node := range s.bed.Nodes {
		own, err := node.Control().Do(ctx, "CLUSTER", "NODES").Text()
		s.ifBroken(err)
		if strings.Contains(own, "myself,slave "+id) {
			return node
		}
	}
	return nil
}

// stop stops the master of a name for less than the time after which the cluster notices.
func (s *clusterStand) stop(name string) (bites int) {
	node := s.owner(name)
	node.Pause()
	time.Sleep(rand.N(500 * time.Millisecond))
	node.Resume()
	return 1
}
