package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/check"
	"github.com/redlatch/redlatch/internal/history"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/workload"
	"github.com/redlatch/redlatch/lua"
)

// primitive is a lock under simulation.
type primitive struct {
	of func(c *redlatch.Client, a *workload.Actor) workload.Lock
	// stays reports whether a key stays, by design, when nobody has to do with the
	// lock any more.
	stays func(key string) bool
	// outlives is how long what a client had in Redis may outlive it.
	outlives     func(s schedule) time.Duration
	linearizable func(ops []history.Op) error
	// whileLeasesEnd judges a history in which the end of a hold is an operation.
	whileLeasesEnd func(ops []history.Op) error
	// queued: those who have to wait stand in a queue, whose order is judged too.
	queued  bool
	fenced  bool
	units   int      // that there are, 1 of a mutex
	resizes []int    // to which their number is changed; none of a mutex
	keys    []string // that may vanish, the first being that of who holds
	// idle looks, by a client that had nothing to do with it, whether all that there is
	// can be had again when nobody holds anything. Nil: nothing but keys can tell.
	idle func(ctx context.Context, w *world, c *redlatch.Client) error
	// commands are its commands on the wire, of which "acquire" and "release" have
	// to be two; grants are those that may grant. A kind that stops matching shows
	// as one that never bites.
	commands map[string]func(cmd []string) bool
	grants   []string
}

// world is one server, the clients of a schedule, each with a link of its own,
// and what befalls them.
type world struct {
	t        *rapid.T
	p        primitive
	s        schedule
	server   *redistest.Virtual
	skewed   atomic.Bool  // the server's clock was set
	offset   atomic.Int64 // of it
	machines []*machine
	faults   []*redistest.Fault // as in s.faults
	bites    map[string]int     // of events
	mu       sync.Mutex         // guards bites

	recorder           *history.Recorder
	checked, unchecked *check.Memory
}

// machine is one client and its link.
type machine struct {
	link   *redistest.Virtual
	rdb    *redis.Client
	client *redlatch.Client
	actors []*workload.Actor
	ctx    context.Context // ends when it dies
	die    context.CancelFunc
	over   atomic.Bool // closed by an event, or dead
	dead   atomic.Bool
}

const name = "orders"

// build makes the world, inside its bubble.
func build(t *rapid.T, p primitive, s schedule) *world {
	w := &world{
		t: t, p: p, s: s, server: redistest.Bubble(t), bites: map[string]int{},
		recorder: history.InMemory(history.Since(time.Now())),
		checked:  check.NewMemory(true), unchecked: check.NewMemory(false),
	}
	link := w.server
	for c, plans := range s.clients {
		if c > 0 {
			link = w.server.Another()
		}
		w.machines = append(w.machines, w.machine(p, link, len(plans)))
	}
	for _, f := range s.faults {
		w.faults = append(w.faults, f.inject(p, w.machines[f.link].link))
	}
	for c, m := range w.machines {
		if s.slow { // behind the others, since the first rule that takes a command has it
			delay := 200*time.Microsecond + time.Duration(c)*37*time.Microsecond
			m.link.Inject(redistest.Rule{Match: scripts, Action: redistest.DelayRequest(delay)})
		}
	}
	var loaded []string
	if s.warm {
		loaded = lua.Texts()
	}
	w.server.KeepLua(w.setClock, loaded...)
	return w
}

func (w *world) machine(p primitive, link *redistest.Virtual, goroutines int) *machine {
	rdb := link.Client(func(o *redis.Options) {
		o.PoolSize, o.PipelinePoolSize = 40, 2
		o.ReadBufferSize, o.WriteBufferSize = 1024, 1024
		o.DisableIdentity = true
		o.DialerRetries = 1 // go-redis sleeps between them under the mutex of its PubSub
	})
	options := []redlatch.Option{
		redlatch.WithLease(w.s.lease), redlatch.WithTurns(w.s.turns), redlatch.WithHeartbeat(w.s.heartbeat),
		redlatch.WithLogger(slog.New(slog.DiscardHandler)), redlatch.WithDescription(""),
	}
	if w.s.every != 0 {
		options = append(options, redlatch.WithRenewal(w.s.every))
	}
	client, err := redlatch.New(rdb, options...)
	if err != nil {
		w.t.Fatal(err)
	}
	m := &machine{link: link, rdb: rdb, client: client}
	m.ctx, m.die = context.WithCancel(context.Background())
	for range goroutines {
		a := &workload.Actor{
			Client: w.nextActor(m), Name: name, Recorder: w.recorder,
		}
		if p.fenced {
			a.Resources = []check.Resource{w.checked, w.unchecked}
		}
		a.Lock = p.of(client, a)
		m.actors = append(m.actors, a)
	}
	return m
}

func (w *world) nextActor(m *machine) int {
	n := len(m.actors)
	for _, other := range w.machines {
		n += len(other.actors)
	}
	return n
}

// setClock makes the server's clock run with its offset. Scripts call commands
// from inside, where the clock cannot be set.
func (w *world) setClock() {
	if w.skewed.Load() {
		w.server.Server.SetTime(time.Now().Add(time.Duration(w.offset.Load())))
	}
}

// run lets everybody do what was drawn. The error is one who waits for ever.
func (w *world) run() error {
	var all sync.WaitGroup
	for c, m := range w.machines {
		for g, a := range m.actors {
			all.Go(func() { a.Run(m.ctx, w.s.clients[c][g]) })
		}
	}
	for _, e := range w.s.events {
		all.Go(func() { time.Sleep(e.at); w.happen(e) })
	}
	for i, f := range w.s.faults {
		if strings.HasPrefix(f.action, "duplicate") || f.action == "hold back" {
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
		if e.what == "close" || e.what == "die" {
			longest += w.s.lease
		}
	}
	select {
	case <-done:
		return nil
	case <-time.After(longest):
	}
	for _, m := range w.machines {
		m.die()
	}
	<-done
	return fmt.Errorf("somebody still waits after %v", longest)
}

// happen is one event.
func (w *world) happen(e event) {
	m := w.machines[e.link]
	bite := false
	switch e.what {
	case "kill connections":
		bite = m.link.Kill(redistest.AllTraffic) > 0
	case "kill subscriber":
		bite = m.link.Kill(redistest.SubscriberTraffic) > 0
	case "deafen":
		bite = m.hole(redistest.SubscriberTraffic, e.wait, m.link.Unheard)
	case "black hole":
		// Not the handshakes: go-redis reads those of its PubSub under a mutex.
		bite = m.hole(redistest.CommandTraffic, e.wait, m.link.Discarded)
	case "cut off":
		bite = m.link.Open() > 0
		m.link.Down()
		time.Sleep(e.wait)
		if !m.dead.Load() {
			m.link.Up()
		}
	case "die":
		bite = m.link.Open() > 0
		m.over.Store(true)
		m.dead.Store(true)
		m.die()
		m.link.Down()
	case "close":
		bite = m.link.Open() > 0
		m.over.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = m.client.Close(ctx)
	case "delete":
		bite = w.server.Server.Del(w.p.keys[e.which%len(w.p.keys)])
		w.forget()
	case "flush":
		time.Sleep(333 * time.Nanosecond) // when nobody else is at work: none is granted before the step
		bite = len(w.server.Server.Keys()) > 0
		w.server.Server.FlushAll()
		w.forget()
		// Fences of one instant are counted up from its time. Outside of a bubble
		// that time goes on meanwhile.
		w.step(time.Millisecond)
	case "clock forward":
		bite = w.step(e.wait)
	case "clock back":
		bite = w.step(-e.wait)
	default:
		panic(e.what)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if bite {
		w.bites[e.what]++
	}
}

func (m *machine) hole(traffic redistest.Traffic, d time.Duration, fell func() int) (bite bool) {
	before := fell()
	m.link.BlackHole(traffic)
	time.Sleep(d)
	m.link.Heal()
	return fell() > before
}

// forget takes down that a number of units which a resize has set may be forgotten:
// then what programs say counts again.
func (w *world) forget() {
	if len(w.p.resizes) > 0 {
		w.recorder.Begin(history.Op{Client: -1, Name: name, Kind: history.Resize, Units: w.p.units})
	}
}

// step sets the server's clock. It bites if there is a lease to end or stretch.
func (w *world) step(d time.Duration) (bite bool) {
	bite = w.server.Server.Exists(w.p.keys[0])
	w.offset.Add(int64(d))
	w.skewed.Store(true)
	return bite
}

// disturbed are the actors who may have lost something by a fault or an event.
func (w *world) disturbed() map[int]bool {
	actors := map[int]bool{}
	for link, m := range w.machines {
		for _, a := range m.actors {
			actors[a.Client] = w.hit(link)
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

func (w *world) hit(link int) bool {
	for i, f := range w.s.faults {
		if f.link == link && w.faults[i].Bites() > 0 {
			return true
		}
	}
	return slices.ContainsFunc(w.s.events, func(e event) bool {
		return e.link == link || slices.Contains([]string{"flush", "clock forward", "clock back"}, e.what)
	})
}

// settle ends the faults, and gives what goes on in the background its time.
func (w *world) settle() {
	for _, m := range w.machines {
		if m.over.Load() {
			continue
		}
		m.link.Heal()
		m.link.Up()
	}
	for _, f := range w.faults {
		f.Disarm()
	}
	// A call's limit twice: what was sent before the end of the faults, and what
	// it may have been granted. What a dead client had, or was granted after it
	// had closed, has its time to go; and so has what was given up on while a fault
	// lasted longer than a lease.
	rest := 10 * time.Second
	if w.s.expires || slices.ContainsFunc(w.machines, func(m *machine) bool { return m.over.Load() }) {
		rest += w.p.outlives(w.s)
	}
	time.Sleep(rest)
	if w.skewed.Load() { // miniredis' clock stands still between settings
		w.server.Server.SetTime(time.Now().Add(max(0, time.Duration(w.offset.Load()))))
	}
}

// idle asks the primitive whether everything has come back.
func (w *world) idle(p primitive) error {
	if p.idle == nil {
		return nil
	}
	m := w.machine(p, w.server.Another(), 0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := p.idle(ctx, w, m.client)
	err = errors.Join(err, m.client.Close(ctx))
	m.die()
	err = errors.Join(err, m.rdb.Close())
	time.Sleep(time.Second) // the server hears of that
	return err
}

// remains is what is left of the lock though nobody has to do with it.
func (w *world) remains(p primitive) error {
	for _, key := range w.server.Server.Keys() {
		if !p.stays(key) {
			return fmt.Errorf("the key %q remains: %v", key, w.server.Server.Dump())
		}
	}
	if channels := w.server.Server.PubSubChannels("*"); len(channels) > 0 {
		return fmt.Errorf("somebody still listens to %q", channels)
	}
	return nil
}

// end closes what is open. Goroutines that are left then fail the bubble.
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
	time.Sleep(10 * time.Second) // go-redis goes on dialling for a while where a link was down
	return err
}
