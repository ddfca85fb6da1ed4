package redistest

import (
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Proxy is between clients and a server, and causes faults. It knows the protocol, so that a fault
// hits one chosen command.
type Proxy struct {
	t TB

	discarded  atomic.Int64
	unreceived atomic.Int64
	delayed    atomic.Int64
	running    sync.WaitGroup

	mu        sync.Mutex
	dial      func() (net.Conn, error)
	addr      string // empty in virtual time
	listener  net.Listener
	refusing  bool // refuses clients: down, or closed
	sessions  map[*session]struct{}
	faults    []*Fault
	hole      Traffic
	lag       time.Duration // of messages
	accepted  int
	forwarded map[string]int
	recording bool
	record    [][]string
}

// Traffic is a kind of connection.
type Traffic int

const (
	noTraffic Traffic = iota
	// AllTraffic is every connection.
	AllTraffic
	// SubscriberTraffic is the connections that have asked for a subscription.
	SubscriberTraffic
	// CommandTraffic is the connections that have sent commands, but have not asked for a
	// subscription. A connection with a handshake only belongs to neither.
	CommandTraffic
)

// NewProxy listens on a port of its own in front of the server at upstream, until the test ends.
func NewProxy(t TB, upstream string) *Proxy {
	t.Helper()
	p := newProxy(t, func() (net.Conn, error) { return net.DialTimeout("tcp", upstream, readyWithin) })
	l, err := listenLocal()
	if err != nil {
		t.Fatalf("redistest: proxy: %v", err)
	}
	p.addr = l.Addr().String()
	p.serve(l)
	return p
}

func newProxy(t TB, dial func() (net.Conn, error)) *Proxy {
	p := &Proxy{t: t, dial: dial, sessions: map[*session]struct{}{}, forwarded: map[string]int{}}
	t.Cleanup(p.close)
	return p
}

// Addr is the address for clients. Down and Up do not change it.
func (p *Proxy) Addr() string { return p.addr }

// Client returns a go-redis client of the proxy. It has default options except for the changes of
// mods. It is closed when the test ends.
func (p *Proxy) Client(mods ...func(*redis.Options)) *redis.Client {
	p.t.Helper()
	return newClient(p.t, p.addr, mods)
}

// Inject makes a rule active. The first rule that takes a command gets it.
func (p *Proxy) Inject(rule Rule) *Fault {
	f := newFault(p.t, rule)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f
}

// BlackHole discards all traffic of that kind in both directions. It leaves the connections open,
// and accepts new ones. It lasts until Heal. A connection that lost something stays silent until
// its end, as after a lost NAT entry.
func (p *Proxy) BlackHole(traffic Traffic) { p.setHole(traffic) }

// Heal ends BlackHole for new connections, and for those that lost nothing.
func (p *Proxy) Heal() { p.setHole(noTraffic) }

// Discarded counts the commands and replies that fell into a black hole.
func (p *Proxy) Discarded() int { return int(p.discarded.Load()) }

// Unreceived counts the published messages that Discarded counts.
func (p *Proxy) Unreceived() int { return int(p.unreceived.Load()) }

// KillAll closes every connection.
func (p *Proxy) KillAll() { p.Kill(AllTraffic) }

// Kill closes the connections of that kind, and returns how many there were.
func (p *Proxy) Kill(traffic Traffic) (killed int) {
	p.mu.Lock()
	var doomed []*session
	for s := range p.sessions {
		if traffic.has(s.role.Load()) {
			doomed = append(doomed, s)
			delete(p.sessions, s)
		}
	}
	p.mu.Unlock()
	for _, s := range doomed { // end takes the mutex to remove the session
		s.end()
	}
	return len(doomed)
}

// KillNode closes the connections to a node of a cluster, and returns how many there were.
func (p *Proxy) KillNode(node int) (killed int) {
	p.mu.Lock()
	var doomed []*session
	for s := range p.sessions {
		if s.at != nil && s.at.node == node {
			doomed = append(doomed, s)
		}
	}
	p.mu.Unlock()
	for _, s := range doomed { // end takes the mutex to remove the session
		s.end()
	}
	return len(doomed)
}

// Down closes every connection and refuses new ones.
func (p *Proxy) Down() {
	p.mu.Lock()
	p.refusing = true
	l := p.listener
	p.listener = nil
	p.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
	p.KillAll()
}

// Up undoes Down, on the same address.
func (p *Proxy) Up() {
	p.t.Helper()
	p.mu.Lock()
	p.refusing = false
	p.mu.Unlock()
	if p.addr == "" {
		return
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Fatalf("redistest: proxy: %v", err)
	}
	p.serve(l)
}

// Accepted counts the connections that the proxy has accepted.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Open counts the connections that are open.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sessions)
}

// Forwarded counts the commands of these names that went to the server since ResetCounts. Without
// names, it counts all commands. It does not count the commands that Release sends.
func (p *Proxy) Forwarded(names ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for name, count := range p.forwarded {
		if len(names) == 0 || slices.ContainsFunc(names, func(s string) bool { return strings.EqualFold(s, name) }) {
			n += count
		}
	}
	return n
}

// ResetCounts forgets the recorded commands, and the counts of connections and commands.
func (p *Proxy) ResetCounts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted, p.forwarded, p.record = 0, map[string]int{}, nil
}

// Record records every command that the proxy forwards from now on.
func (p *Proxy) Record() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recording = true
}

// Recorded returns the commands recorded so far, in the order in which they went to the server.
func (p *Proxy) Recorded() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.record)
}

// serve accepts clients until the listener closes.
func (p *Proxy) serve(l net.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = l
	p.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			// In a goroutine of its own, because a server that does not accept one connection must
			// not block other clients.
			p.running.Go(func() { _ = p.connect(client, nil) })
		}
	})
}

// connect makes a session for the connection of a client, or closes the connection.
func (p *Proxy) connect(client net.Conn, at *place) error {
	server, err := p.dialServer()
	if err != nil {
		_ = client.Close()
		return err
	}
	s := newSession(p, client, server, at)
	if !p.admit(s) {
		s.end()
		return syscall.ECONNREFUSED
	}
	return nil
}

// admit starts the session, unless the proxy refuses clients.
func (p *Proxy) admit(s *session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusing {
		return false
	}
	p.accepted++
	p.sessions[s] = struct{}{}
	p.running.Go(s.requests)
	p.running.Go(s.replies)
	p.running.Go(s.out.run)
	return true
}

// dialServer connects to the server that the proxy leads clients to.
func (p *Proxy) dialServer() (net.Conn, error) {
	p.mu.Lock()
	dial := p.dial
	p.mu.Unlock()
	return dial()
}

// lead makes new connections go to another server, and ends the others.
func (p *Proxy) lead(dial func() (net.Conn, error)) {
	p.mu.Lock()
	p.dial = dial
	p.mu.Unlock()
	p.KillAll()
}

// DelayMessages delays messages of subscriptions by d, so they arrive behind the answers to later
// commands of other connections. 0 ends that.
func (p *Proxy) DelayMessages(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lag = d
}

// Delayed counts the messages that DelayMessages made late.
func (p *Proxy) Delayed() int { return int(p.delayed.Load()) }

// messageDue is the time at which a message that comes now should arrive. Zero: immediately.
func (p *Proxy) messageDue() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lag == 0 {
		return time.Time{}
	}
	p.delayed.Add(1)
	return time.Now().Add(p.lag)
}

func (p *Proxy) isRefusing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusing
}

func (p *Proxy) forget(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, s)
}

// close is the clean-up. No connection and no goroutine remains.
func (p *Proxy) close() {
	p.Down()
	p.running.Wait()
}

// faultFor returns the first fault that takes the command.
func (p *Proxy) faultFor(cmd command) *Fault {
	p.mu.Lock()
	faults := slices.Clone(p.faults)
	p.mu.Unlock()
	for _, f := range faults {
		if f.take(cmd) {
			return f
		}
	}
	return nil
}

func (p *Proxy) count(cmd command) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forwarded[cmd.name()]++
	if p.recording {
		p.record = append(p.record, cmd.args)
	}
}

func (p *Proxy) setHole(traffic Traffic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole = traffic
}

func (p *Proxy) isHoleFor(role int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hole.has(role)
}

func (t Traffic) has(role int32) bool {
	switch t {
	case AllTraffic:
		return true
	case SubscriberTraffic:
		return role == roleSubscriber
	case CommandTraffic:
		return role == roleCommands
	default:
		return false
	}
}
