package redistest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redlatch/redlatch/internal/key"
)

// Slots makes a cluster out of an embedded server: it says which node has which hash slot. All
// nodes have the data of the one server, so a message reaches the subscribers of each node, and no
// fault of the cluster loses a write. But a node refuses a command as one of a real cluster does:
// with MOVED, ASK, TRYAGAIN or CLUSTERDOWN. Nodes can die, and answer nobody for a while.
//
// It checks a command when that leaves the proxy. In a real node, nothing comes between the check
// and the command. Here, another command may come, and then the script runs on the node that had
// the slot.
type Slots struct {
	server *miniredis.Miniredis

	mu        sync.Mutex
	nodes     []node
	owners    [slotCount]int
	migration *migration
	down      bool // the cluster is
	refused   int
}

const slotCount = 1 << 14

// node is one node of a virtual cluster.
type node struct {
	dead    bool
	stalled time.Time // until then
	waited  bool      // a command or a message has
}

// migration is the move of a slot from its owner to another node.
type migration struct {
	slot, to int
	moved    map[string]bool // keys that the other node has, if they exist
}

// Cluster makes a cluster of the server, whose masters have equal shares of the slots.
func (v *Virtual) Cluster(masters int) *Slots {
	s := &Slots{server: v.Server, nodes: make([]node, masters)}
	for slot := range s.owners {
		s.owners[slot] = slot * masters / slotCount
	}
	return s
}

// ClusterClient is Client for a cluster. All its connections go through this link.
func (v *Virtual) ClusterClient(s *Slots, mods ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	opt := &redis.ClusterOptions{
		Addrs:                    s.addrs(),
		Dialer:                   func(ctx context.Context, _, addr string) (net.Conn, error) { return v.dialNode(ctx, s, addr) },
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		PoolSize:                 1000,
	}
	for _, mod := range mods {
		mod(opt)
	}
	c := redis.NewClusterClient(opt)
	v.t.Cleanup(func() { _ = c.Close() })
	// go-redis asks once which commands there are, and holds a mutex meanwhile. A fault must not
	// make it wait.
	ctx := context.Background()
	if err := c.Process(ctx, redis.NewClusterSlotsCmd(ctx, "cluster", "slots")); err != nil {
		v.t.Fatalf("redistest: virtual cluster: %v", err)
	}
	return c
}

// dialNode is Dial for a node of a cluster.
func (v *Virtual) dialNode(ctx context.Context, s *Slots, addr string) (net.Conn, error) {
	n := numberOf(addr)
	if s.isDead(n) {
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	}
	return v.dialAs(ctx, &place{slots: s, node: n})
}

// place is where a connection of a cluster ends.
type place struct {
	slots  *Slots
	node   int
	asking bool // the last command was ASKING; used by the goroutine that handles commands only
}

// addrOf is the address of a node. It is literal, because a resolver would run outside the bubble.
func addrOf(node int) string { return fmt.Sprintf("127.0.0.%d:1", node+1) }

func numberOf(addr string) int {
	host, _, _ := net.SplitHostPort(addr)
	n, err := strconv.Atoi(strings.TrimPrefix(host, "127.0.0."))
	if err != nil {
		panic(fmt.Sprintf("redistest: no address of a virtual node: %q", addr))
	}
	return n - 1
}

// addrs are the addresses of the nodes that live.
func (s *Slots) addrs() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.nodes {
		if !s.nodes[n].dead {
			all = append(all, addrOf(n))
		}
	}
	return all
}

func (s *Slots) isDead(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[n].dead
}

// Refused counts the commands that a node has refused so far.
func (s *Slots) Refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// Move gives the slot of a name to another node at once.
func (s *Slots) Move(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := key.Slot(name)
	s.owners[slot] = s.heir(s.owners[slot])
}

// StartMigration begins to move the slot of a name to another node. From then on, new keys are made
// there.
func (s *Slots) StartMigration(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := key.Slot(name)
	s.migration = &migration{slot: slot, to: s.heir(s.owners[slot]), moved: map[string]bool{}}
}

// MoveKeys moves those keys of the migrating slot that has says, and returns how many.
func (s *Slots) MoveKeys(has func(key string) bool) (moved int) {
	all := s.server.Keys() // takes the mutex of miniredis
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range all {
		if m := s.migration; m != nil && key.Slot(k) == m.slot && !m.moved[k] && has(k) {
			m.moved[k] = true
			moved++
		}
	}
	return moved
}

// EndMigration gives the slot, with all keys that are left, to the other node.
func (s *Slots) EndMigration() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.migration; m != nil {
		s.owners[m.slot], s.migration = m.to, nil
	}
}

// Fail makes the node of a name die. Its slots have no node until Promote.
func (s *Slots) Fail(name string) (node int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.owners[key.Slot(name)]
	s.nodes[n].dead = true
	return n
}

// Promote gives the slots of a dead node to a new one, which has all of its data.
func (s *Slots) Promote(dead int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = append(s.nodes, node{})
	for slot, owner := range s.owners {
		if owner == dead {
			s.owners[slot] = len(s.nodes) - 1
		}
	}
	if m := s.migration; m != nil && m.to == dead {
		m.to = len(s.nodes) - 1
	}
}

// Stall makes the node of a name answer nobody for d. It returns when that is over, and reports
// whether somebody had to wait.
func (s *Slots) Stall(name string, d time.Duration) (waited bool) {
	s.mu.Lock()
	n := s.owners[key.Slot(name)]
	s.nodes[n].stalled, s.nodes[n].waited = time.Now().Add(d), false
	s.mu.Unlock()
	time.Sleep(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[n].waited
}

// SetDown begins or ends a time in which the cluster serves no keys.
func (s *Slots) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// heir is the next node that lives.
func (s *Slots) heir(n int) int {
	for range s.nodes {
		if n = (n + 1) % len(s.nodes); !s.nodes[n].dead {
			return n
		}
	}
	panic("redistest: all nodes are dead")
}

// stalledUntil is when the node answers again. It is zero if the node answers.
func (p *place) stalledUntil() time.Time {
	p.slots.mu.Lock()
	defer p.slots.mu.Unlock()
	n := &p.slots.nodes[p.node]
	if !time.Now().Before(n.stalled) {
		return time.Time{}
	}
	n.waited = true
	return n.stalled
}

// answer is what the node answers to the command itself. It is empty if the server runs the
// command.
func (p *place) answer(cmd command) string {
	s := p.slots
	asking := p.asking
	switch p.asking = cmd.name() == "ASKING"; {
	case p.asking:
		return "+OK\r\n"
	case cmd.name() == "CLUSTER":
		return s.list()
	}
	keys := keysOf(cmd.args)
	if len(keys) == 0 {
		return ""
	}
	present := map[string]bool{}
	for _, k := range keys {
		present[k] = s.server.Exists(k) // takes the mutex of miniredis
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	refusal := s.refusal(p.node, asking, keys, present)
	if refusal == "" {
		return ""
	}
	s.refused++
	return "-" + refusal + "\r\n"
}

// refusal is what a node answers instead of running a command with these keys. It is the table of
// getNodeByQuery in Redis 7. present says which keys exist on any node.
func (s *Slots) refusal(n int, asking bool, keys []string, present map[string]bool) string {
	if s.down {
		return "CLUSTERDOWN The cluster is down"
	}
	slot := key.Slot(keys[0])
	for _, k := range keys {
		if key.Slot(k) != slot {
			return "CROSSSLOT Keys in request don't hash to the same slot"
		}
	}
	owner, m := s.owners[slot], s.migration
	if m != nil && m.slot != slot {
		m = nil
	}
	has, lacks := 0, 0
	for _, k := range keys {
		there := m != nil && m.moved[k]
		if present[k] && there == (n != owner) {
			has++
		} else {
			lacks++
		}
	}
	switch {
	case s.nodes[owner].dead:
		return "CLUSTERDOWN The cluster is down"
	case n == owner && m != nil && lacks > 0 && has > 0:
		return "TRYAGAIN Multiple keys request during rehashing of slot"
	case n == owner && m != nil && lacks > 0:
		return fmt.Sprintf("ASK %d %s", slot, addrOf(m.to))
	case n == owner:
		return ""
	case m == nil || n != m.to || !asking:
		return fmt.Sprintf("MOVED %d %s", slot, addrOf(owner))
	case len(keys) > 1 && lacks > 0:
		return "TRYAGAIN Multiple keys request during rehashing of slot"
	}
	for _, k := range keys { // what the command makes is here
		m.moved[k] = true
	}
	return ""
}

// list is the answer to CLUSTER SLOTS.
func (s *Slots) list() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ranges := ""
	count := 0
	for first := 0; first < slotCount; {
		last := first
		for last+1 < slotCount && s.owners[last+1] == s.owners[first] {
			last++
		}
		host, _, _ := net.SplitHostPort(addrOf(s.owners[first]))
		ranges += fmt.Sprintf("*3\r\n:%d\r\n:%d\r\n*3\r\n$%d\r\n%s\r\n:1\r\n$40\r\n%040d\r\n", first, last, len(host), host, s.owners[first])
		first = last + 1
		count++
	}
	return fmt.Sprintf("*%d\r\n", count) + ranges
}

// keysOf returns the keys of a command that locks send. Others have none.
func keysOf(args []string) []string {
	if len(args) < 3 || !Command("EVAL", "EVALSHA")(args) {
		return nil
	}
	n, err := strconv.Atoi(args[2])
	if err != nil || n < 0 || len(args) < 3+n {
		return nil
	}
	return args[3 : 3+n]
}
