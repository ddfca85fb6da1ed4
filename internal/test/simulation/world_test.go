package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/workload"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// world is one server, and the clients of a schedule, each with a link of its own. It also makes
// the faults and events happen.
type world struct {
	t                     *rapid.T
	p                     primitive
	s                     schedule
	server                *redistest.Virtual
	slots                 *redistest.Slots          // of the cluster that the server stands for; nil: it is one server
	replica               *redistest.Virtual        // which lags behind; nil if no client is led to it
	skewed                atomic.Bool               // the server's clock was set
	offset                atomic.Int64              // of the server's clock
	standing              atomic.Pointer[time.Time] // the server stands still until then
	stood                 atomic.Bool               // and a script has waited for it
	removed               atomic.Int64              // number of waiters that an operator may have removed
	machines              []*machine
	faults                []fault        // as in s.faults
	delays                []fault        // of slow links
	bites                 map[string]int // of events
	mu                    sync.Mutex     // guards bites and the fields below, up to back
	closeFailed           error          // a Close that took too long, or left a lock without an error
	deaths                []check.Death
	deletions             []int64       // when a key was to be deleted, or an operator ended a grant
	stoodFrom, stoodUntil int64         // the time when the server stood still
	stuck                 time.Duration // how much longer Redis keeps the holds of crashed clients, because the clock was set back
	stepped               time.Time     // when the clock was last set back
	back                  time.Duration // by how much

	stretched time.Duration // by how much in all

	instants           instants
	recorder           *history.Recorder
	checked, unchecked map[string]*check.Memory // by name
}

// fault is a fault of a schedule that is active. It counts how often it really bit.
type fault interface {
	Bites() int
	Disarm()
	Release() []any
}

// machine is one client and its link.
type machine struct {
	plan   client
	number int
	link   *redistest.Virtual
	rdb    redis.UniversalClient
	client *redlatch.Client
	actors []*workload.Actor // siblings too
	runs   []*workload.Actor // actors that begin by themselves

	hoarded []*lock.Hold
	ctx     context.Context // ends when the machine crashes
	die     context.CancelFunc
	over    atomic.Bool // closed by an event, or crashed
	dead    atomic.Bool
}

// build makes the world, inside its bubble.
func build(t *rapid.T, p primitive, s schedule) *world {
	w := &world{
		t: t, p: p, s: s, server: redistest.Bubble(t), bites: map[string]int{},
		checked: map[string]*check.Memory{}, unchecked: map[string]*check.Memory{},
	}
	w.recorder = history.InMemory(w.instants.clock(time.Now()))
	if slices.ContainsFunc(s.events, func(e event) bool { return e.what == "stale replica" }) {
		w.replica = w.server.Replica()
	}
	if s.masters > 0 {
		w.slots = w.server.Cluster(s.masters)
	}
	link := w.server
	for c, plan := range s.clients {
		if c > 0 {
			link = w.server.Another()
		}
		w.machines = append(w.machines, w.machine(p, link, plan))
	}
	for _, f := range s.faults {
		w.faults = append(w.faults, f.inject(p, w.machines[f.link]))
	}
	for c, m := range w.machines {
		if s.jitter {
			m.link.Inject(redistest.Rule{Match: eachThird(scripts), Action: redistest.DelayReply(30 * time.Millisecond)})
		}
		if m.plan.delay > 0 {
			w.delays = append(w.delays, m.link.Inject(m.plan.delayed()))
		}
		if s.slow { // behind the other rules, because the first rule that takes a command has it
			delay := 200*time.Microsecond + time.Duration(c)*37*time.Microsecond
			m.link.Inject(redistest.Rule{Match: scripts, Action: redistest.DelayRequest(delay)})
		}
	}
	for _, m := range w.machines {
		if m.plan.replicas == someReplicas {
			m.link.Inject(redistest.Rule{Match: eachThird(waits), Action: redistest.FailAfter(":0")})
		}
		m.link.Inject(redistest.Rule{Match: waits, Action: redistest.FailAfter(":1")}) // miniredis has no replicas
	}
	var loaded []string
	if s.warm {
		loaded = lua.ScriptSources()
	}
	w.server.KeepLua(w.beforeScript, loaded...)
	return w
}

// client makes the go-redis client of a machine.
func (w *world) client(link *redistest.Virtual, plan client) redis.UniversalClient {
	const buffer = 1024
	pool, pipelines := 200+2*plan.hoard, 2 // see redistest.Virtual.Client
	// A client that obeys deadlines receives no late answers, so its link must not be slow:
	// see docs/guarantees.md.
	obeys := plan.direct && 4*plan.delay <= min(plan.lease, plan.heartbeat)
	const dials = 1 // go-redis sleeps between retries under the mutex of its PubSub
	if w.slots == nil {
		return link.Client(func(o *redis.Options) {
			o.PoolSize, o.PipelinePoolSize, o.ReadBufferSize, o.WriteBufferSize = pool, pipelines, buffer, buffer
			o.DisableIdentity, o.ContextTimeoutEnabled, o.DialerRetries = true, obeys, dials
		})
	}
	return link.ClusterClient(w.slots, func(o *redis.ClusterOptions) {
		o.PoolSize, o.PipelinePoolSize, o.ReadBufferSize, o.WriteBufferSize = pool, pipelines, buffer, buffer
		o.DisableIdentity, o.ContextTimeoutEnabled, o.DialerRetries = true, obeys, dials
	})
}

func (w *world) machine(p primitive, link *redistest.Virtual, plan client) *machine {
	rdb := w.client(link, plan)
	m := &machine{plan: plan, number: len(w.machines), link: link, rdb: rdb}
	about := ""
	if slices.ContainsFunc(w.s.events, func(e event) bool { return e.what == "clock back" }) {
		about = m.String()
	}
	options := plan.options(w.s.handoffs, about)
	if plan.replicas != notAsked {
		options = append(options, withReplicas(plan.lease))
	}
	made, err := redlatch.New(rdb, options...)
	if err != nil {
		w.t.Fatal(err)
	}
	m.client = made
	m.ctx, m.die = context.WithCancel(context.Background())
	for _, g := range plan.goroutines {
		m.runs = append(m.runs, w.actor(p, m, g))
	}
	return m
}

// withReplicas asks a replica to acknowledge the grants of a lock with this lease.
func withReplicas(lease time.Duration) redlatch.LockOption {
	return redlatch.WithReplicas(1, min(lease/2, 500*time.Millisecond))
}

// options returns the options of a client. about is its description.
func (s settings) options(handoffs time.Duration, about string) []redlatch.Option {
	options := []redlatch.Option{
		redlatch.WithLease(s.lease), redlatch.WithLocalHandoffTime(handoffs), redlatch.WithHeartbeat(s.heartbeat),
		redlatch.WithLogger(slog.New(slog.DiscardHandler)), redlatch.WithDescription(about), redlatch.WithPrefix(s.prefix),
	}
	if s.every != 0 {
		options = append(options, redlatch.WithRenewInterval(s.every))
	}
	if s.keep != 0 {
		options = append(options, redlatch.WithFenceRetention(s.keep))
	}
	return options
}

func (m *machine) String() string { return fmt.Sprintf("machine %d", m.number) }

// released reads the errors of locks that replicas acknowledge. If Redis refuses that, the lock was
// held until the client released it, and others may have seen that.
func released(kind history.Kind, err error) (outcome history.Outcome, over bool) {
	if kind != history.Release && errors.Is(err, lockerr.ErrRefused) {
		return history.Unknown, false
	}
	return workload.Redlatch(kind, err)
}

// actor makes an actor for a goroutine, and its siblings.
func (w *world) actor(p primitive, m *machine, g goroutine) *workload.Actor {
	name, given := m.plan.named(g.name)
	a := &workload.Actor{Client: w.nextActor(m), Name: name, Recorder: w.recorder, UnlockLimit: g.unlockLimit, Bare: len(g.siblings) > 0, Endless: m.plan.endless && !w.s.kills(), Mortal: w.s.exits()}
	a.Lease = w.s.lease()
	if m.plan.replicas != notAsked {
		a.Meaning = released
	}
	m.actors = append(m.actors, a)
	if w.checked[name] == nil {
		w.checked[name], w.unchecked[name] = check.NewMemory(true), check.NewMemory(false)
	}
	if p.fenced {
		a.Resources = []check.Resource{w.checked[name], w.unchecked[name]}
	}
	var options []redlatch.LockOption
	if g.lease != 0 {
		options = append(options, redlatch.WithLease(g.lease))
	}
	if g.lease != 0 && m.plan.replicas != notAsked {
		options = append(options, withReplicas(g.lease))
	}
	a.Lock = p.of(m, given, a, options...)
	if _, foreign := a.Lock.(*redissonLock); !foreign {
		a.Within = func(d time.Duration) workload.Lock {
			return p.of(m, given, a, append(slices.Clone(options), redlatch.WithWaitTimeout(d))...)
		}
	}
	if p.counted {
		a.Counted = func(ctx context.Context) (string, int, error) {
			info, err := m.client.Mutex(given).Inspect(ctx)
			return info.Holder, info.Holds, err
		}
	}
	for _, sibling := range g.siblings {
		s := w.actor(p, m, sibling)
		s.Bare = true
		a.Siblings = append(a.Siblings, workload.Sibling{Actor: s, Plan: sibling.steps})
	}
	return a
}

// named returns the whole name of a lock, and the name that the client calls it. If the client has
// a prefix that name lacks, name means another lock to that client.
func (c client) named(name string) (whole, given string) {
	if given, has := strings.CutPrefix(name, c.prefix); has {
		return name, given
	}
	return c.prefix + name, name
}

func (w *world) nextActor(m *machine) int {
	n := len(m.actors)
	for _, other := range w.machines {
		n += len(other.actors)
	}
	return n
}

// beforeScript makes scripts wait while the server stands still. It also sets the server's clock
// according to its offset, because a script calls commands from inside, where nothing can set the
// clock.
func (w *world) beforeScript() {
	if until := w.standing.Load(); until != nil && time.Now().Before(*until) {
		w.stood.Store(true)
		time.Sleep(time.Until(*until))
	}
	if w.skewed.Load() {
		w.server.Server.SetTime(time.Now().Add(time.Duration(w.offset.Load())))
	}
}

// run lets everybody do what was drawn. It returns an error if somebody waits for ever.
func (w *world) run() error {
	var all sync.WaitGroup
	for _, m := range w.machines {
		m.hoard()
		for g, a := range m.runs {
			all.Go(func() { a.Run(m.ctx, m.plan.goroutines[g].steps) })
		}
	}
	for _, e := range w.s.events {
		all.Go(func() { time.Sleep(e.at); w.happen(e) })
	}
	for i, f := range w.s.faults {
		if strings.HasPrefix(f.action, "duplicate") || strings.HasPrefix(f.action, "hold back") {
			all.Go(func() {
				time.Sleep(f.wait + time.Duration(i+1)*time.Microsecond) // when nothing else happens
				w.faults[i].Release()
			})
		}
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	longest := w.s.longest
	for _, e := range w.s.events {
		if slices.Contains([]string{"close", "close in an outage", "die", "hang and close"}, e.what) {
			longest += w.s.lease()
		}
	}
	select {
	case <-done:
		return nil
	case <-time.After(longest):
	}
	select {
	case <-done:
		return nil
	case <-time.After(w.excused()):
	}
	for _, m := range w.machines {
		m.die()
	}
	<-done
	return fmt.Errorf("somebody still waits after %v", longest)
}

// happen lets one event happen.
func (w *world) happen(e event) {
	m := w.machines[max(e.link, 0)]
	bite := false
	if e.what == "delete" || e.what == "force release" { // it may happen even if its reply comes too late
		w.mu.Lock()
		w.deletions = append(w.deletions, w.recorder.Now())
		w.mu.Unlock()
	}
	switch e.what {
	case "kill connections":
		bite = m.link.Kill(redistest.AllTraffic) > 0
	case "kill subscriber":
		bite = m.link.Kill(redistest.SubscriberTraffic) > 0
	case "deafen":
		bite = m.hole(redistest.SubscriberTraffic, e.wait, m.link.Unreceived)
	case "black hole":
		// Not the handshakes, because go-redis reads those of its PubSub under a mutex.
		bite = m.hole(redistest.CommandTraffic, e.wait, m.link.Discarded)
	case "cut off":
		bite = m.link.Open() > 0
		m.link.Down()
		time.Sleep(e.wait)
		if !m.dead.Load() {
			m.link.Up()
		}
	case "late messages":
		before := m.link.Delayed()
		m.link.DelayMessages(e.wait)
		time.Sleep(2 * e.wait)
		m.link.DelayMessages(0)
		bite = m.link.Delayed() > before
	case "forge":
		bite = w.forge()
	case "remove waiter":
		bite = w.removeWaiter(m)
	case "deny publish":
		w.server.DenyPublish(true)
		time.Sleep(e.wait)
		bite = w.server.DenyPublish(false) > 0
	case "standstill":
		until := time.Now().Add(e.wait)
		w.stoodFrom = w.recorder.Now()
		w.standing.Store(&until)
		time.Sleep(e.wait)
		w.stoodUntil = w.recorder.Now()
		bite = w.stood.Load()
	case "stale replica":
		m.link.SwitchTo(w.replica)
		time.Sleep(e.wait)
		m.link.SwitchBack()
		bite = w.replica.Server.TotalConnectionCount() > 1
	case "hang and close":
		bite = m.link.Open() > 0
		m.over.Store(true)
		m.link.BlackHole(redistest.CommandTraffic)
		w.close(m, e.wait)
		m.link.Heal()
	case "die":
		w.died(m)
		bite = m.link.Open() > 0
		m.over.Store(true)
		m.dead.Store(true)
		m.die()
		m.link.Down()
	case "close in an outage":
		bite = m.link.Open() > 0
		m.link.Down()
		outage := time.AfterFunc(e.wait, m.link.Up)
		time.Sleep(e.wait / 4) // some give up their Unlock before
		m.over.Store(true)
		w.close(m, time.Minute)
		outage.Stop()
		m.link.Up()
	case "close":
		bite = m.link.Open() > 0
		m.over.Store(true)
		w.close(m, time.Minute)
	case "delete":
		bite = w.server.Server.Del(w.p.keys[e.which%len(w.p.keys)])
		w.forget()
	case "force release":
		bite = w.forceRelease(m)
	case "flush":
		time.Sleep(333 * time.Nanosecond) // when nobody else is at work, so that nothing is granted between the flush and the step
		bite = len(w.server.Server.Keys()) > 0
		w.server.Server.FlushAll()
		w.forget()
		// Redis counts fences of one instant up from its time. Outside of a bubble that time goes
		// on meanwhile.
		w.step(time.Millisecond)
	case "clock forward":
		bite = w.step(e.wait)
	case "clock back":
		bite = w.step(-e.wait)
	case "slot migrates", "slot moves", "node fails", "failover forgets", "node stalls", "cluster is down":
		bite = w.trouble(e)
	default:
		panic(e.what)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if bite {
		w.bites[e.what]++
	}
	if bite && e.what == "hang and close" && len(m.hoarded) > 0 {
		w.bites[closesAHoard]++
	}
}

// trouble lets one of the troubles of a cluster happen to the node of the lock. It bites if a node
// refused a command, or if it had connections to lose.
func (w *world) trouble(e event) (bite bool) {
	before := w.slots.Refused()
	switch e.what {
	case "slot migrates":
		w.slots.StartMigration(name)
		time.Sleep(e.wait / 3)
		w.slots.MoveKeys(func(string) bool { e.which = e.which*5 + 3; return e.which%2 == 0 })
		time.Sleep(e.wait / 3)
		w.slots.MoveKeys(func(string) bool { return true })
		time.Sleep(e.wait / 3)
		w.slots.EndMigration()
	case "slot moves":
		w.slots.Move(name)
		time.Sleep(e.wait)
	case "node fails":
		node, open := w.slots.Fail(name), 0
		for _, m := range w.machines {
			open += m.link.KillNode(node)
		}
		time.Sleep(e.wait)
		w.slots.Promote(node)
		return open > 0
	case "failover forgets":
		return w.failOver(e.wait)
	case "node stalls":
		return w.slots.Stall(name, e.wait)
	case "cluster is down":
		w.slots.SetDown(true)
		time.Sleep(e.wait)
		w.slots.SetDown(false)
	}
	return w.slots.Refused() > before
}

// failOver has the node of the lock die. The one that takes over has the data of lag before that.
func (w *world) failOver(lag time.Duration) (bite bool) {
	const aside = 333 * time.Nanosecond // when nobody else is at work
	time.Sleep(aside)
	restore := w.server.Snapshot()
	time.Sleep(lag)
	node := w.slots.Fail(name)
	for _, m := range w.machines {
		m.link.KillNode(node)
	}
	time.Sleep(lag / 2) // still aside
	w.mu.Lock()
	w.deletions = append(w.deletions, w.recorder.Now())
	w.mu.Unlock()
	bite = restore()
	w.forget()
	w.slots.Promote(node)
	return bite
}

// close closes a client, and checks that Close takes no longer than within and a moment. If Close
// returns no error, Redis has no lock of the client any more.
func (w *world) close(m *machine, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	began := time.Now()
	err := m.client.Close(ctx)
	took, left := time.Since(began), w.left(m)
	w.mu.Lock()
	defer w.mu.Unlock()
	if took > within+moment {
		w.closeFailed = fmt.Errorf("Close took %v, with a context of %v", took, within)
	}
	if err == nil && len(left) > 0 {
		w.closeFailed = fmt.Errorf("Close returned no error, and Redis still has %q", left)
	}
}

// left returns the acquisitions of a client that Redis still has. A client does not release a lock
// that it has lost. So left is empty if locks may be lost.
func (w *world) left(m *machine) (acquisitions []string) {
	if w.s.expires {
		return nil
	}
	stored := w.server.Server.Dump()
	for _, op := range w.recorder.History().Ops {
		isOwn := slices.ContainsFunc(m.actors, func(a *workload.Actor) bool { return a.Client == op.Client })
		if isOwn && op.Acquisition != "" && regexp.MustCompile(op.Acquisition+`\b`).MatchString(stored) {
			acquisitions = append(acquisitions, op.Acquisition)
		}
	}
	return acquisitions
}

// moment is the time by which Close may overrun its context.
const moment = 100 * time.Millisecond

// hoard takes the locks that a client holds besides.
func (m *machine) hoard() {
	for i := range m.plan.hoard {
		if h, err := m.client.Mutex(fmt.Sprintf("hoard %d of %v", i, m)).Lock(m.ctx); err == nil {
			m.hoarded = append(m.hoarded, h)
		}
	}
}

// squander releases the hoard.
func (m *machine) squander() {
	for _, h := range m.hoarded {
		_ = h.Unlock(context.Background()) // unless Close has released it, or its lease is over
	}
}

// died records that a client crashes now. A second event changes nothing, because commands in
// flight ended with the first.
func (w *world) died(m *machine) {
	if m.dead.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.stepped) < w.s.lease()/2 { // before a renewal
		w.stuck += w.back
	}
	for _, a := range m.actors {
		w.deaths = append(w.deaths, check.Death{Client: a.Client, At: w.recorder.Now(), Lease: m.plan.longestLease()})
	}
}

// forceRelease is an operator with a short time limit, who ends the last acquisition that was
// granted.
func (w *world) forceRelease(m *machine) (bite bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Microsecond)
	defer cancel()
	holder := ""
	for _, op := range w.recorder.History().Ops {
		if op.Outcome == history.Done && op.Kind != history.Release {
			holder = op.Acquisition
		}
	}
	return w.p.force(ctx, m, holder)
}

// removeWaiter is an operator who removes a waiter from the queue.
func (w *world) removeWaiter(m *machine) (bite bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	q := w.p.queue(m)
	waiters, _, err := q.Queue(ctx, 0, 100)
	if err != nil || len(waiters) == 0 {
		return false
	}
	removed, err := q.RemoveWaiter(ctx, waiters[len(waiters)/2].ID)
	if removed || err != nil { // it may have happened
		w.removed.Add(1)
	}
	return removed
}

// queue is what operators do to the queue of a lock.
type queue interface {
	Queue(ctx context.Context, skip, show int) ([]lock.Waiter, int, error)
	RemoveWaiter(ctx context.Context, acquisition string) (bool, error)
}

// forge does what strangers can do who may publish, and see who listens. It notifies waiters of
// grants and removals, and of locks that are free.
func (w *world) forge() (bite bool) {
	for _, channel := range w.server.Server.PubSubChannels("redlatch:client:*") {
		client := strings.TrimPrefix(channel, "redlatch:client:")
		for n := range 40 {
			for _, fence := range []string{"9223372036854775807", "1", "0", "-1", "", "x"} {
				bite = w.server.Server.Publish(channel, fmt.Sprintf("%s:%d %s", client, n, fence)) > 0 || bite
			}
		}
	}
	for _, channel := range w.server.Server.PubSubChannels("redisson_lock__channel:*") {
		for _, text := range []string{"0", "1", "", "x"} {
			bite = w.server.Server.Publish(channel, text) > 0 || bite
		}
	}
	return bite
}

func (m *machine) hole(traffic redistest.Traffic, d time.Duration, fell func() int) (bite bool) {
	before := fell()
	m.link.BlackHole(traffic)
	time.Sleep(d)
	m.link.Heal()
	return fell() > before
}

// forget records that Redis may forget a limit that a Resize has set. Then the limit that programs
// request counts again.
func (w *world) forget() {
	if len(w.p.resizes) > 0 {
		w.recorder.Begin(history.Op{Client: -1, Name: name, Kind: history.Resize, Units: w.p.units})
	}
}

// step sets the server's clock. It bites if there is a lease that it can end or stretch.
func (w *world) step(d time.Duration) (bite bool) {
	bite = w.server.Server.Exists(w.p.keys[0])
	w.mu.Lock()
	if d < 0 && w.isHeldByTheDead() {
		w.stuck -= d
	}
	if d < 0 {
		w.stepped, w.back, w.stretched = time.Now(), -d, w.stretched-d
		w.stretch(-d)
	}
	w.mu.Unlock()
	w.offset.Add(int64(d))
	w.skewed.Store(true)
	return bite
}

// stretch does to the ends of keys what setting back the clock does in Redis. There the ends are
// instants, but miniredis counts them down.
func (w *world) stretch(d time.Duration) {
	for _, key := range w.server.Server.Keys() {
		if left := w.server.Server.TTL(key); left > 0 {
			w.server.Server.SetTTL(key, left+d)
		}
	}
}

// isHeldByTheDead reports whether a crashed machine holds the lock, so that nobody corrects a lease
// that was stretched.
func (w *world) isHeldByTheDead() bool {
	holders := w.p.keys[len(w.p.keys)-1] // their descriptions name the machines
	fields, _ := w.server.Server.HKeys(holders)
	return slices.ContainsFunc(w.machines, func(m *machine) bool {
		return m.dead.Load() && slices.ContainsFunc(fields, func(f string) bool {
			return strings.Contains(w.server.Server.HGet(holders, f), m.String())
		})
	})
}

// excused is how much longer than promised others may wait: for crashed clients, and while waiters
// learn of grants by heartbeats, because Redis has refused to let their client subscribe.
func (w *world) excused() time.Duration {
	const recheck = 30 * time.Second // a client subscribes again so long after a refusal
	refused := 0
	for i, f := range w.s.faults {
		if f.command == "subscribe" && strings.HasPrefix(f.action, "refuse") {
			refused += w.faults[i].Bites()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stuck + time.Duration(refused)*recheck
}

// disturbed are the actors that may have lost something by a fault or an event.
func (w *world) disturbed(by func(w *world, link int) bool) map[int]bool {
	actors := map[int]bool{}
	for link, m := range w.machines {
		for _, a := range m.actors {
			actors[a.Client] = by(w, link)
		}
	}
	return actors
}

// late reports whether a command came late, or came again.
func (w *world) late() bool {
	for i, f := range w.s.faults {
		if slices.Contains(late, f.action) && w.faults[i].Bites() > 0 {
			return true
		}
	}
	return false
}

// hit reports whether a fault or an event affected a link.
func (w *world) hit(link int) bool {
	if w.machines[link].plan.delay > 0 {
		return true
	}
	return w.befell(link, func(wireFault) bool { return true }, func(event) bool { return true })
}

// hitCommands reports whether a fault or an event affected the commands on a link, and not only the
// messages. A client that gets no messages learns from its heartbeats, and loses no place. But if
// its commands are slow, compared with the time for which its grant waits for it, the heartbeat may
// be too late.
func (w *world) hitCommands(link int) bool {
	if c := w.machines[link].plan; c.delay > min(c.lease, c.heartbeat)/4 {
		return true
	}
	onlyMessages := []string{"kill subscriber", "deafen", "late messages", "forge", "deny publish"}
	return w.befell(link, func(f wireFault) bool { return f.command != "subscribe" },
		func(e event) bool { return !slices.Contains(onlyMessages, e.what) })
}

// hitRequests reports whether requests on a link were delayed.
func (w *world) hitRequests(link int) bool {
	plan := w.machines[link].plan
	return plan.delay > 0 && !plan.late || w.befell(link,
		func(f wireFault) bool { return f.action == "delay request" }, func(event) bool { return false })
}

func (w *world) befell(link int, counts func(wireFault) bool, also func(event) bool) bool {
	for i, f := range w.s.faults {
		if f.link == link && w.faults[i].Bites() > 0 && counts(f) {
			return true
		}
	}
	return slices.ContainsFunc(w.s.events, func(e event) bool {
		return also(e) && (e.link == link || slices.Contains([]string{"flush", "clock forward", "clock back", "deny publish"}, e.what) || e.what == "failover forgets" || slices.Contains(ofClusters, e.what))
	})
}

// settle ends the faults, and gives the work in the background its time.
func (w *world) settle() {
	for _, m := range w.machines {
		if m.over.Load() {
			continue
		}
		m.link.Heal()
		m.link.Up()
		m.squander()
	}
	for _, f := range slices.Concat(w.faults, w.delays) {
		f.Disarm()
	}
	// The time limit of a call counts twice: for commands sent before the end of the faults, and
	// for the grants that they may have got. Grants of a crashed client need time to end, and so do
	// those that a client got after Close. So do those that clients gave up while a fault lasted
	// longer than a lease.
	rest := 10 * time.Second
	if w.s.expires || slices.ContainsFunc(w.machines, func(m *machine) bool { return m.over.Load() }) {
		rest += w.p.outlives(w.s) + w.stretched
	}
	if w.removed.Load() > 0 {
		rest += 61 * time.Minute // Redis remembers for an hour whom an operator has removed
	}
	time.Sleep(rest)
	if w.skewed.Load() { // the clock of miniredis stands still between settings
		w.server.Server.SetTime(time.Now().Add(max(0, time.Duration(w.offset.Load()))))
	}
}

// misled returns an error if a call returned long after its context, or if a holder was notified of
// a loss although nothing can end by itself.
func (w *world) misled() error {
	for _, m := range w.machines {
		for _, a := range m.actors {
			if err := errors.Join(a.Late(), a.Broken()); err != nil {
				return err
			}
			if acquisition, misled := a.Misled(); misled && !w.s.expires && !m.over.Load() {
				return fmt.Errorf("actor %d was notified of the loss of %s, which nothing can have ended", a.Client, acquisition)
			}
		}
	}
	return nil
}

// names returns the names of the locks that were used.
func (w *world) names() []string { return slices.Sorted(maps.Keys(w.checked)) }

// outcomes returns what happened to each lock.
func (w *world) outcomes() (outcomes []outcome) {
	ctx := context.Background()
	all := w.recorder.History()
	w.instants.widen(all)
	parts := all.ByName()
	kinds, machines := map[int]string{}, map[int]int{}
	for i, m := range w.machines {
		for _, a := range m.actors {
			machines[a.Client] = i
			kinds[a.Client] = m.plan.kindOf(slices.Index(m.actors, a))
		}
	}
	for _, name := range w.names() {
		o := outcome{
			history: parts[name], lease: w.s.lease(), heartbeat: w.s.heartbeat(), disturbed: w.disturbed((*world).hit), displaced: w.disturbed((*world).hitCommands), delayed: w.disturbed((*world).hitRequests),
			deletions: w.deletions, removed: int(w.removed.Load()), late: w.late(), stood: w.stood.Load(), stoodFrom: w.stoodFrom, stoodUntil: w.stoodUntil, deaths: w.deaths, kinds: kinds, machines: machines, handoffs: w.s.handoffs,
		}
		isCount := func(op history.Op) bool { return op.Kind == history.Count }
		o.counts = slices.DeleteFunc(slices.Clone(o.history.Ops), func(op history.Op) bool { return !isCount(op) })
		o.history.Ops = slices.DeleteFunc(o.history.Ops, isCount)
		o.checked, _ = w.checked[name].Audit(ctx)
		o.unchecked, _ = w.unchecked[name].Audit(ctx)
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// idle asks the primitive whether all units can be acquired again.
func (w *world) idle(p primitive) error {
	if p.idle == nil {
		return nil
	}
	m := w.machine(p, w.server.Another(), client{settings: settings{lease: w.s.lease(), heartbeat: w.s.heartbeat()}})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	for _, name := range w.names() {
		err = errors.Join(err, p.idle(ctx, w, m.client, name))
	}
	err = errors.Join(err, m.client.Close(ctx))
	m.die()
	err = errors.Join(err, m.rdb.Close())
	time.Sleep(time.Second) // the server notices that the connections are closed
	return err
}

// leavesDescriptions reports whether the description of a permit may stay after a release that only
// freed the units, because the slot migrated. The client repeats the release in the background. But
// a slot may migrate for longer, and a failover may bring the description back.
func (w *world) leavesDescriptions() bool {
	forgets := slices.ContainsFunc(w.s.events, func(e event) bool { return e.what == "failover forgets" })
	return slices.ContainsFunc(w.s.events, func(e event) bool {
		return e.what == "slot migrates" && (forgets || e.wait > w.s.lease()+w.s.heartbeat())
	})
}

// remains returns an error if keys or channels of the locks are left although nobody uses the
// locks.
func (w *world) remains(p primitive) error {
	for _, key := range w.server.Server.Keys() {
		if !p.stays(key, w.names()) && !isFence(key, nil) && !(w.leavesDescriptions() && strings.HasPrefix(key, "redlatch:holders:")) {
			return fmt.Errorf("the key %q remains: %v", key, w.server.Server.Dump())
		}
	}
	if channels := w.server.Server.PubSubChannels("*"); len(channels) > 0 {
		return fmt.Errorf("somebody still listens to %q", channels)
	}
	return nil
}

// end closes everything that is open. If goroutines are left then, they fail the bubble.
func (w *world) end() (err error) {
	for _, m := range w.machines {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if e := m.client.Close(ctx); e != nil && !m.over.Load() {
			err = fmt.Errorf("close: %w", e)
		}
		m.die()
		_ = m.rdb.Close()
	}
	time.Sleep(10 * time.Second) // go-redis goes on dialling for a while if a link was down
	return err
}
