//go:build unix

package chaos_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// fault is a trouble that happens again and again while work goes on.
type fault struct {
	name  string
	bites string        // what is counted
	args  []string      // for the server
	rule  func() ruling // applied by the proxy, to commands chosen by chance; or
	blow  func(s *stand) (bites int)
	gap   time.Duration // about the time between two blows

	// heartbeat is for waiters in queues, if the fault may keep a client away for longer than the
	// usual one. 0: the usual one.
	heartbeat time.Duration
}

// ruling is a rule, and says what happens to the commands that it keeps.
type ruling struct {
	redistest.Rule
	release bool // release late commands, again and again
}

// trouble is a fault that is happening.
type trouble struct {
	bitten func() int
	stop   chan struct{}
	ended  sync.WaitGroup
}

// begin lets the fault happen until end.
func (f fault) begin(s *stand) *trouble {
	t := &trouble{stop: make(chan struct{})}
	if f.rule != nil {
		t.apply(s, f.rule())
		return t
	}
	var n atomic.Int64
	t.bitten = func() int { return int(n.Load()) }
	t.every(f.gap, func() { n.Add(int64(f.blow(s))) })
	return t
}

func (t *trouble) apply(s *stand, r ruling) {
	active := s.proxy.Inject(r.Rule)
	t.bitten = active.Bites
	t.ended.Go(func() {
		<-t.stop
		active.Disarm()
		active.Release()
	})
	if r.release {
		t.every(20*time.Millisecond, func() { active.Release() })
	}
}

// every calls do until the end, the first time immediately.
func (t *trouble) every(gap time.Duration, do func()) {
	t.ended.Go(func() {
		for {
			do()
			select {
			case <-t.stop:
				return
			case <-time.After(gap/2 + rand.N(gap)):
			}
		}
	})
}

// end returns when no more faults happen.
func (t *trouble) end() {
	close(t.stop)
	t.ended.Wait()
}

// scripts matches the commands of the library.
var scripts = redistest.Command("EVAL", "EVALSHA")

// changes matches the commands of all primitives that grant nothing to a client that has nothing. A
// late copy of a grant that was answered does not exist, because the client does not send an
// answered command again. It sends an unanswered command again, and then the late command is the
// original.
var changes = anyOf(reenters, counts, gives, beats, renewals)

// gives matches the commands that release a lock.
var gives = anyOf(releases, leaves, givesPermits)

func anyOf(matches ...func([]string) bool) func([]string) bool {
	return func(cmd []string) bool {
		return slices.ContainsFunc(matches, func(match func([]string) bool) bool { return match(cmd) })
	}
}

// some matches a random part of what match matches.
func some(part float64, match func([]string) bool) func([]string) bool {
	return func(cmd []string) bool { return match(cmd) && rand.Float64() < part }
}

func by(part float64, match func([]string) bool, a redistest.Action) func() ruling {
	return func() ruling { return ruling{Rule: redistest.Rule{Match: some(part, match), Action: a}} }
}

func late(part float64, match func([]string) bool, a redistest.Action) func() ruling {
	return func() ruling {
		return ruling{Rule: redistest.Rule{Match: some(part, match), Action: a}, release: true}
	}
}

// troubles are faults of connections, servers and messages that let no lock expire.
var troubles = []fault{
	{name: "replies cut", bites: "replies cut", rule: by(.05, scripts, redistest.CutReply())},
	{name: "requests cut", bites: "requests cut", rule: by(.05, scripts, redistest.CutRequest())},
	{name: "connections reset after the command", bites: "resets", rule: by(.05, scripts, redistest.ResetReply())},
	{name: "late originals", bites: "commands held back", rule: late(.02, scripts, redistest.HoldBack())},
	{name: "late copies", bites: "commands run twice", rule: late(.1, changes, redistest.Duplicate())},
	{name: "half-open sockets", bites: "sockets silenced", rule: by(.005, scripts, redistest.SilenceBoth())},
	{name: "command connections killed", bites: "connections killed", gap: 50 * time.Millisecond, blow: killing("normal"), heartbeat: 10 * time.Second},
	{name: "subscribers killed", bites: "subscribers killed", gap: 5 * time.Millisecond, blow: killing("pubsub")},
	{name: "black-holed subscriber", bites: "messages swallowed", gap: 100 * time.Millisecond, blow: deafening},
	{name: "subscribers that read too slowly", bites: "subscribers dropped", gap: 50 * time.Millisecond, blow: flooding,
		args: []string{"--client-output-buffer-limit", "pubsub 8kb 0 0"}},
	{name: "channels denied", bites: "commands denied", gap: 300 * time.Millisecond, blow: denying("resetchannels", "allchannels", 50*time.Millisecond)},
	{name: "keys denied", bites: "commands denied", gap: 300 * time.Millisecond, blow: denying("resetkeys", "allkeys", 30*time.Millisecond)},
	{name: "scripts denied", bites: "commands denied", gap: 300 * time.Millisecond, blow: denying("-evalsha", "+evalsha", 30*time.Millisecond)},
	{name: "CLIENT PAUSE", bites: "pauses", gap: 300 * time.Millisecond, blow: pausing},
	{name: "SCRIPT FLUSH", bites: "NOSCRIPT", gap: 5 * time.Millisecond, blow: flushingScripts},
	{name: "BUSY", bites: "BUSY", args: []string{"--lua-time-limit", "5"}, gap: 300 * time.Millisecond, blow: occupying},
	{name: "LOADING", bites: "LOADING", gap: time.Second, blow: reloading,
		args: []string{"--save", "3600 1", "--rdbcompression", "no", "--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024"}},
	{name: "READONLY", bites: "READONLY", gap: 300 * time.Millisecond, blow: demoting},
	{name: "NOREPLICAS", bites: "NOREPLICAS", gap: 300 * time.Millisecond, blow: unreplicated},
	// After failed dials, go-redis tries again only once a second. Between two blows a waiter must
	// have time for a heartbeat command, also on a busy machine.
	{name: "maxclients", bites: "connections rejected", gap: 200 * time.Millisecond, blow: crowding, heartbeat: 10 * time.Second},
}

// killing makes the server close all connections of a kind, except the operator's.
func killing(kind string) func(*stand) int {
	return func(s *stand) int {
		n, _ := s.server.Control().Do(context.Background(), "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes").Int()
		return n
	}
}

// deafening swallows the messages to subscribers, for longer than a poll. It waits for a
// subscriber, because a connection that is silent before that would only prevent subscriptions.
func deafening(s *stand) int {
	for n := 0; n < 100 && s.channels() == 0; n++ {
		time.Sleep(time.Millisecond)
	}
	before := s.proxy.Unreceived()
	s.proxy.BlackHole(redistest.SubscriberTraffic)
	defer s.proxy.Heal()
	time.Sleep(3 * poll)
	return s.proxy.Unreceived() - before
}

// flooding sends subscribers more data at one time than the server keeps for them.
func flooding(s *stand) (dropped int) {
	channels, _ := s.server.Control().PubSubChannels(context.Background(), "*").Result()
	before := s.subscribers()
	for _, channel := range channels {
		s.try("PUBLISH", channel, strings.Repeat("x", 64<<10))
	}
	after := s.subscribers()
	for id := range before {
		if !after[id] {
			dropped++
		}
	}
	return dropped
}

// subscribers returns the connections that listen, by their ids in CLIENT LIST.
func (s *stand) subscribers() map[string]bool {
	all, _ := s.server.Control().Do(context.Background(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	ids := map[string]bool{}
	for line := range strings.Lines(all) {
		id, _, _ := strings.Cut(line, " ")
		ids[id] = true
	}
	return ids
}

// denying takes a right away from the user for a while. If that is the right to channels,
// subscriptions end too.
func denying(deny, allow string, d time.Duration) func(*stand) int {
	return func(s *stand) int {
		before := s.refusals("NOPERM")
		s.operate("ACL", "SETUSER", "default", deny)
		time.Sleep(d)
		s.operate("ACL", "SETUSER", "default", allow)
		return s.refusals("NOPERM") - before
	}
}

// pausing counts the pauses that a write really had to wait for.
func pausing(s *stand) int {
	const d = 30
	kind := []string{"WRITE", "ALL"}[rand.N(2)]
	s.operate("CLIENT", "PAUSE", d, kind)
	began := time.Now()
	s.try("SET", "pausing", "x")
	if time.Since(began) < d/2*time.Millisecond {
		return 0
	}
	return 1
}

func flushingScripts(s *stand) int {
	before := s.refusals("NOSCRIPT")
	s.operate("SCRIPT", "FLUSH")
	time.Sleep(2 * time.Millisecond)
	return s.refusals("NOSCRIPT") - before
}

// occupying runs a script for so long that the server replies BUSY.
func occupying(s *stand) int {
	before := s.refusals("BUSY")
	s.try("EVAL", `local t = redis.call('TIME')
		local function us(t) return t[1] * 1000000 + t[2] end
		local first = us(t)
		repeat until us(redis.call('TIME')) > first + 40000`, 0)
	return s.refusals("BUSY") - before
}

// reloading makes the server save everything and end, and then take its time to load.
func reloading(s *stand) int {
	s.operate("EVAL", "for i = 1, 500 do redis.call('SET', 'filler:' .. i, 'xxxxxxxxxxxxxxxx') end return 1", 0)
	s.server.Stop()
	s.server.Relaunch()
	n := 0
	for { // the server counts, and the count grows until it has loaded
		loading := s.counted("persistence", "loading")
		n = max(n, s.refusals("LOADING"))
		if loading == 0 {
			return n
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// demoting makes the server a replica of a master that does not exist, for a while.
func demoting(s *stand) int {
	before := s.refusals("READONLY")
	s.operate("REPLICAOF", "127.0.0.1", "1")
	time.Sleep(30 * time.Millisecond)
	s.operate("REPLICAOF", "NO", "ONE")
	return s.refusals("READONLY") - before
}

// unreplicated makes the server refuse writes, because it has too few replicas.
func unreplicated(s *stand) int {
	before := s.refusals("NOREPLICAS")
	s.operate("CONFIG", "SET", "min-replicas-to-write", 1)
	time.Sleep(30 * time.Millisecond)
	s.operate("CONFIG", "SET", "min-replicas-to-write", 0)
	return s.refusals("NOREPLICAS") - before
}

// crowding leaves no room for clients that connect again.
func crowding(s *stand) int {
	before := s.counted("stats", "rejected_connections")
	s.operate("CONFIG", "SET", "maxclients", 1)
	killing("normal")(s)
	killing("pubsub")(s)
	time.Sleep(20 * time.Millisecond)
	n := s.counted("stats", "rejected_connections") - before
	s.operate("CONFIG", "SET", "maxclients", 1000)
	return n
}
