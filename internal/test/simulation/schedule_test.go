package simulation_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/workload"
	"github.com/redlatch/redlatch/lua"
)

// schedule is everything that rapid draws. All of it is drawn before anything runs, so that a seed
// or a failfile repeats it completely.
type schedule struct {
	longest  time.Duration
	expires  bool          // leases may end by themselves
	handoffs time.Duration // WithLocalHandoffTime
	slow     bool          // the wire takes time, which differs between clients
	warm     bool          // the server knows the scripts
	jitter   bool          // each third reply takes longer
	masters  int           // of a cluster; 0: there is one server
	clients  []client
	faults   []wireFault
	events   []event
}

// client is one client of the library, with its options.
type client struct {
	settings

	kind       string // of lock, if a primitive has several
	goroutines []goroutine
	endless    bool // calls without a time limit have contexts that cannot end
	direct     bool // go-redis obeys deadlines, so calls send by themselves
	replicas   replicas
}

// replicas says what replicas do if a client asks them to acknowledge its grants.
type replicas int

const (
	notAsked replicas = iota
	allReplicas
	someReplicas // too few have each third grant
)

// settings are the options in which clients may differ.
type settings struct {
	lease, every, heartbeat time.Duration // every: 0 for the default
	keep                    time.Duration // of fences and permits; 0 for the default
	prefix                  string
	delay                   time.Duration // of each command, or of each reply
	late                    bool          // the reply
	hoard                   int           // number of locks that it holds besides, with names of its own
}

// goroutine does its steps with the lock of one name. Its siblings do theirs while it has that
// lock, as far as its steps allow that.
type goroutine struct {
	name        string
	lease       time.Duration // of its lock; 0: that of the client
	steps       []workload.Step
	siblings    []goroutine
	unlockLimit time.Duration // of an Unlock, before it is called again; 0: without end
	recounts    bool          // it counts holds after it has left one
}

// wireFault hits commands of one kind on the link of one client.
type wireFault struct {
	link        int
	command     string
	action      string
	skip, times int
	wait        time.Duration
}

// event happens at an instant, whatever the clients do.
type event struct {
	at   time.Duration
	what string
	link int // nobody for an event that affects the server alone
	wait time.Duration

	which int // of the keys that may vanish
}

// kills reports whether a client dies. Its calls must then end with its context.
func (s schedule) kills() bool {
	return slices.ContainsFunc(s.events, func(e event) bool { return e.what == "die" })
}

// exits reports whether a hook ends goroutines.
func (s schedule) exits() bool {
	return slices.ContainsFunc(s.faults, func(f wireFault) bool { return strings.HasPrefix(f.action, "hook exits") })
}

// longestOf is the longest value of a setting of the clients.
func (s schedule) longestOf(of func(settings) time.Duration) (longest time.Duration) {
	for _, c := range s.clients {
		longest = max(longest, of(c.settings))
	}
	return longest
}

func (s schedule) lease() (longest time.Duration) {
	for _, c := range s.clients {
		longest = max(longest, c.longestLease())
	}
	return longest
}

// longestLease is the longest lease that a lock of the client may have.
func (c client) longestLease() time.Duration {
	longest := c.lease
	for _, g := range c.goroutines {
		longest = max(longest, g.lease)
	}
	return longest
}

func (s schedule) heartbeat() time.Duration {
	return s.longestOf(func(s settings) time.Duration { return s.heartbeat })
}

func draw(t *rapid.T, p primitive, h hardship) schedule {
	s := schedule{
		longest: h.longest, expires: h.expires,
		handoffs: rapid.SampledFrom(ms(0, 10, 300, 3000, 3000)).Draw(t, "hands on for"),
		slow:     rapid.Bool().Draw(t, "slow wire"),
		masters:  h.masters,
		warm:     rapid.SampledFrom([]bool{true, true, true, false}).Draw(t, "warm server"),
	}
	crowds := rapid.SampledFrom(h.crowds).Draw(t, "goroutines of clients")
	s.jitter = h.jitter && rapid.Bool().Draw(t, "jitter")
	same := h.drawSettings(t)
	for c, goroutines := range crowds {
		with := client{settings: same}
		if c > 0 && h.differ {
			with.settings = h.drawSettings(t)
		}
		with.endless = rapid.SampledFrom([]bool{false, false, true}).Draw(t, "endless")
		with.direct = rapid.Bool().Draw(t, "direct")
		with.replicas = rapid.SampledFrom([]replicas{notAsked, notAsked, notAsked, allReplicas, someReplicas}).Draw(t, "replicas")
		if len(p.kinds) > 0 {
			with.kind = p.kinds[c%len(p.kinds)]
			if c > 1 {
				with.kind = rapid.SampledFrom(p.kinds).Draw(t, "kind of lock")
			}
		}
		for g := range goroutines {
			does := drawGoroutine(t, p, h, fmt.Sprintf("client %d, goroutine %d", c, g))
			if h.fansOut && rapid.Bool().Draw(t, "fans out") {
				does = drawFanOut(t, p, h, with, does.name)
			}
			if with.kind == redissonKind {
				does.steps = slices.Repeat(simple, 4)
			}
			with.goroutines = append(with.goroutines, does)
		}
		if goroutines > 1 && with.kind != redissonKind {
			switch rapid.SampledFrom([]string{"", "", "all", "first"}).Draw(t, "give up") {
			case "all":
				p.giveUp(t, h, with.goroutines)
			case "first":
				p.giveUp(t, h, with.goroutines[:1])
				for i := range with.goroutines[1:] {
					all := []workload.Step{{Verb: workload.Sleep, For: 2 * time.Millisecond}, {Verb: workload.Acquire, Units: p.one()}, {Verb: workload.Unlock}}
					with.goroutines[i+1].steps = p.patient(append(all, with.goroutines[i+1].steps...), slices.Max(h.pauses))
				}
			}
		}
		s.clients = append(s.clients, with)
	}
	if h.busy {
		p.drawBusy(t, s.clients)
	}
	link := s.disturbable()
	s.faults = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) wireFault { return drawFault(t, p, h, link) }), h.fewest, 2).Draw(t, "faults")
	for i, f := range s.faults {
		if f.action == "duplicate but grants" && s.recounts() {
			// Nothing corrects the number that a copy of an answered command sets, because the
			// client does not know of the copy.
			s.faults[i].action = "hold back but grants"
		}
	}
	s.events = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) event { return drawEvent(t, h, link) }), 0, 2).Draw(t, "events")
	if len(s.events) == 2 && s.events[0].what == "standstill" && s.events[1].what == "standstill" {
		s.events = s.events[:1] // the library does not promise anything for two events within two heartbeats
	}
	if slices.ContainsFunc(s.events, func(e event) bool { return e.what == "flush" }) {
		// The library promises nothing if fences are forgotten and a clock is set back.
		s.events = slices.DeleteFunc(s.events, func(e event) bool { return e.what == "clock back" })
	}
	return s
}

// recounts reports whether a goroutine counts holds after it has left one.
func (s schedule) recounts() bool {
	return slices.ContainsFunc(s.clients, func(c client) bool {
		return slices.ContainsFunc(c.goroutines, func(g goroutine) bool { return g.recounts })
	})
}

// giveUp has the goroutines of a client begin with waits that are over at the same instant. Each of
// them may get its turn to ask then.
func (p primitive) giveUp(t *rapid.T, h hardship, all []goroutine) {
	d := rapid.SampledFrom(h.pauses).Draw(t, "together for")
	for i := range all {
		wait := []workload.Step{{Verb: workload.Sleep, For: time.Millisecond}, {Verb: workload.Hurry, For: d, Units: p.one()}, {Verb: workload.Unlock}}
		all[i].steps = append(wait, all[i].steps...)
	}
}

// drawBusy lets clients wait all the time for a lock that another client holds.
func (p primitive) drawBusy(t *rapid.T, clients []client) {
	const busy, long = "stock", 2500 * time.Millisecond
	last := len(clients) - 1
	clients[last].goroutines = append(clients[last].goroutines, goroutine{name: busy, steps: []workload.Step{
		{Verb: workload.Acquire, Units: p.most()}, {Verb: workload.Sleep, For: long}, {Verb: workload.Unlock},
	}})
	for i := range last {
		if rapid.Bool().Draw(t, "waits for another lock") {
			clients[i].goroutines = append(clients[i].goroutines, goroutine{name: busy, steps: []workload.Step{
				{Verb: workload.Sleep, For: time.Millisecond}, {Verb: workload.Acquire, Units: p.most(), For: long},
			}})
		}
	}
}

// disturbable draws one of the links on which there may be trouble. Clients of another library are
// left out, because this test does not judge what they do then.
func (s schedule) disturbable() *rapid.Generator[int] {
	var links []int
	for i, c := range s.clients {
		if c.kind != redissonKind {
			links = append(links, i)
		}
	}
	return rapid.SampledFrom(links)
}

func (h hardship) drawSettings(t *rapid.T) settings {
	s := settings{
		lease:     rapid.SampledFrom(h.lease).Draw(t, "lease"),
		every:     rapid.SampledFrom(h.every).Draw(t, "renewal"),
		heartbeat: rapid.SampledFrom(h.heartbeats).Draw(t, "heartbeat"),
		keep:      rapid.SampledFrom(h.keeps).Draw(t, "retention"),
		prefix:    rapid.SampledFrom(h.prefixes).Draw(t, "prefix"),
		hoard:     rapid.SampledFrom(h.hoards).Draw(t, "hoard"),
	}
	if part := rapid.SampledFrom(h.delays).Draw(t, "delay"); part > 0 {
		s.delay, s.late = min(s.lease, s.heartbeat)*time.Duration(part)/100, rapid.Bool().Draw(t, "late replies")
	}
	return s
}

// delayed is the rule of a slow link.
func (s settings) delayed() redistest.Rule {
	rule := redistest.Rule{Match: scripts, Action: redistest.DelayRequest(s.delay)}
	if s.late {
		rule.Action = redistest.DelayReply(s.delay)
	}
	return rule
}

func drawGoroutine(t *rapid.T, p primitive, h hardship, label string) goroutine {
	g := goroutine{
		name: rapid.SampledFrom(h.names).Draw(t, "name"), lease: rapid.SampledFrom(h.ownLeases).Draw(t, "own lease"),
		unlockLimit: rapid.SampledFrom(h.unlockLimits).Draw(t, "unlock limit"),
	}
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) workload.Step { return drawStep(t, p, h) }), 1, 2)
	g.steps = steps.Draw(t, label)
	if hold := rapid.SampledFrom(ms(0, 0, 0, 100, 500, 1500)).Draw(t, "hold first"); hold > 0 {
		first := []workload.Step{{Verb: workload.Acquire, Units: p.drawUnits(t)}, {Verb: workload.Sleep, For: hold}}
		g.steps = append(append(first, p.drawSqueeze(t)...), g.steps...)
	}
	if h.counts && p.counted && rapid.SampledFrom([]bool{false, false, false, false, true}).Draw(t, "enters again, and counts") {
		again := workload.Step{Verb: workload.Acquire, For: rapid.SampledFrom(h.pauses).Draw(t, "for")}
		g.steps = []workload.Step{{Verb: workload.Acquire}, {Verb: workload.Sleep, For: 20 * time.Millisecond}, again}
		if rapid.Bool().Draw(t, "leaves in between") {
			g.steps, g.recounts = append(g.steps, workload.Step{Verb: workload.Unlock}, again), true
		}
		g.steps = append(g.steps, workload.Step{Verb: workload.Count, For: 5 * time.Second})
	}
	if rapid.SampledFrom([]bool{false, false, false, false, false, false, true}).Draw(t, "tries on and on") {
		g.steps = slices.Repeat(p.tryOn(), 8)
	}
	if len(h.keeping) > 0 && rapid.Bool().Draw(t, "has it kept") {
		g.steps = p.haveKept(t, h)
	}
	if len(h.turns) > 0 && rapid.Bool().Draw(t, "takes it on and on") {
		g.steps = p.takeOn(t, h)
	}
	g.steps = p.patient(g.steps, slices.Max(h.pauses))
	return g
}

// haveKept takes the lock, has Redis keep it, and takes it again.
func (p primitive) haveKept(t *rapid.T, h hardship) []workload.Step {
	verbs := []workload.Verb{workload.Keep}
	if p.fenced {
		verbs = append(verbs, workload.Pass)
	}
	var steps []workload.Step
	for range rapid.IntRange(1, 3).Draw(t, "keeps") {
		steps = append(steps,
			workload.Step{Verb: workload.Acquire, Units: p.drawUnits(t)},
			workload.Step{Verb: workload.Sleep, For: rapid.SampledFrom(h.pauses).Draw(t, "holds for")},
			workload.Step{
				Verb: rapid.SampledFrom(verbs).Draw(t, "keeps by"), For: rapid.SampledFrom(h.keeping).Draw(t, "keeps for"),
				First: rapid.SampledFrom(ms(0, 0, 1, 20)).Draw(t, "unlocks before within"),
			},
			workload.Step{Verb: workload.Unlock},
		)
	}
	return steps
}

// takeOn takes the lock again and again, and holds it for the same time each time.
func (p primitive) takeOn(t *rapid.T, h hardship) []workload.Step {
	turn := []workload.Step{{Verb: workload.Acquire, Units: p.drawUnits(t)}, {Verb: workload.Unlock}}
	hold := rapid.SampledFrom(h.turns).Draw(t, "each time for")
	if hold == 0 {
		return slices.Repeat(turn, 40)
	}
	return slices.Repeat(slices.Insert(turn, 1, workload.Step{Verb: workload.Sleep, For: hold}), 3)
}

// drawSqueeze lowers the limit and raises it again. In between, others may wait for more units than
// the limit.
func (p primitive) drawSqueeze(t *rapid.T) []workload.Step {
	if len(p.resizes) == 0 || rapid.SampledFrom([]bool{true, false, false}).Draw(t, "no squeeze") {
		return nil
	}
	var steps []workload.Step
	for range 2 {
		limit := rapid.SampledFrom(p.resizes).Draw(t, "squeezed to")
		steps = append(steps, workload.Step{Verb: workload.Resize, Units: limit}, workload.Step{Verb: workload.Sleep, For: 20 * time.Millisecond})
	}
	return steps
}

// drawFanOut draws a goroutine that lets others use its context, for locks of other names.
func drawFanOut(t *rapid.T, p primitive, h hardship, by client, name string) goroutine {
	fan := goroutine{name: name, steps: slices.Repeat([]workload.Step{{Verb: workload.FanOut, Units: p.one()}}, 2)}
	own, _ := by.named(name)
	others := slices.DeleteFunc(slices.Clone(h.names), func(n string) bool {
		whole, _ := by.named(n)
		return whole == own
	})
	pause := rapid.SampledFrom(ms(1, 20, 300))
	for range rapid.IntRange(2, 3).Draw(t, "siblings") {
		fan.siblings = append(fan.siblings, goroutine{
			name: rapid.SampledFrom(others).Draw(t, "name"),
			steps: []workload.Step{
				{Verb: workload.Acquire, For: time.Second, Units: p.drawUnits(t)},
				{Verb: workload.Sleep, For: pause.Draw(t, "for")}, {Verb: workload.Work, For: pause.Draw(t, "for")}, {Verb: workload.Unlock},
			},
		})
	}
	return fan
}

// simple has the steps that a lock without owners can do.
var simple = []workload.Step{
	{Verb: workload.Acquire}, {Verb: workload.Sleep, For: 20 * time.Millisecond}, {Verb: workload.Unlock}, {Verb: workload.Sleep, For: 20 * time.Millisecond},
}

// tryOn calls TryLock as often as it can. Actors that wait behind others may not do that.
func (p primitive) tryOn() []workload.Step {
	return []workload.Step{{Verb: workload.Try, Units: p.one()}, {Verb: workload.Unlock}, {Verb: workload.Sleep, For: 40 * time.Millisecond}}
}

// one is the number of units of the smallest request. It is 0 for a mutex, which has no units.
func (p primitive) one() int {
	if p.units == 1 {
		return 0
	}
	return 1
}

// most is the number of all units.
func (p primitive) most() int { return p.one() * p.units }

func drawStep(t *rapid.T, p primitive, h hardship) workload.Step {
	verbs := []workload.Verb{
		workload.Acquire, workload.Acquire, workload.Acquire, workload.Cancel, workload.Hurry, workload.Try,
		workload.Unlock, workload.UnlockWithin, workload.UnlockFirst, workload.UnlockLate, workload.Sleep, workload.Sleep, workload.Work,
	}
	if len(p.resizes) > 0 {
		verbs = append(verbs, workload.Resize, workload.Resize)
	}
	s := workload.Step{Verb: rapid.SampledFrom(verbs).Draw(t, "verb")}
	pause := rapid.SampledFrom(h.pauses)
	switch s.Verb {
	case workload.Resize:
		s.Units = rapid.SampledFrom(p.resizes).Draw(t, "limit")
	case workload.Cancel, workload.Hurry, workload.Sleep, workload.Work, workload.UnlockWithin:
		s.For = pause.Draw(t, "for")
	case workload.Acquire: // sometimes without a limit, because nobody may wait for ever
		if rapid.Bool().Draw(t, "limited") {
			s.For = pause.Draw(t, "for")
		}
	}
	switch s.Verb {
	case workload.Acquire, workload.Cancel, workload.Hurry, workload.Try:
		s.Units = p.drawUnits(t)
	}
	return s
}

// drawUnits draws the number of units of a request, which is 0 for a mutex.
func (p primitive) drawUnits(t *rapid.T) int {
	if p.one() == 0 {
		return 0
	}
	return rapid.IntRange(1, p.units).Draw(t, "units")
}

// patient limits the waits of a goroutine that may have units and asks for more. Two of them could
// wait for each other. A mutex is re-entered instead.
func (p primitive) patient(plan []workload.Step, most time.Duration) []workload.Step {
	for i := range plan {
		if i > 0 && p.units > 1 && plan[i].Verb == workload.Acquire && plan[i].For == 0 {
			plan[i].For = most
		}
	}
	return plan
}

func drawFault(t *rapid.T, p primitive, h hardship, link *rapid.Generator[int]) wireFault {
	f := wireFault{
		link:    link.Draw(t, "link"),
		command: rapid.SampledFrom(append(p.kindsOfCommands(), "acquire", "release", p.rarest())).Draw(t, "command"),
		action:  rapid.SampledFrom(h.actions).Draw(t, "action"),
		skip:    rapid.IntRange(0, max(1, h.skips)).Draw(t, "skip"),
		times:   rapid.IntRange(1, 2).Draw(t, "times"),
		wait:    rapid.SampledFrom(h.waits).Draw(t, "wait"),
	}
	if f.command == "transfer" {
		f.skip = 0 // most schedules have one at most
	}
	return f
}

// rarest is the command that the fewest schedules have.
func (p primitive) rarest() string {
	if p.commands["transfer"] != nil {
		return "transfer"
	}
	return "acquire"
}

func drawEvent(t *rapid.T, h hardship, link *rapid.Generator[int]) event {
	e := event{
		at:   rapid.SampledFrom(h.instants).Draw(t, "at"),
		what: rapid.SampledFrom(h.events).Draw(t, "what"),
		link: link.Draw(t, "link"),
		wait: rapid.SampledFrom(h.waits).Draw(t, "wait"),

		which: rapid.IntRange(0, 11).Draw(t, "which"),
	}
	switch e.what {
	case "clock back", "clock forward":
		e.link, e.wait = nobody, rapid.SampledFrom(h.steps).Draw(t, "step")
	case "forge", "standstill", "deny publish":
		e.link = nobody
	}
	if slices.Contains(ofClusters, e.what) || e.what == "failover forgets" {
		e.link = nobody
	}
	return e
}

// nobody is the link of events that affect the server.
const nobody = -1

// runs matches the commands of one script.
func runs(script string) func(cmd []string) bool {
	return func(cmd []string) bool { return lua.ScriptName(cmd) == script }
}

// eachThird matches every third of the commands that match.
func eachThird(match func(cmd []string) bool) func(cmd []string) bool {
	var n atomic.Int64
	return func(cmd []string) bool { return match(cmd) && n.Add(1)%3 == 0 }
}

var scripts, waits = redistest.Command("EVAL", "EVALSHA"), redistest.Command("WAIT")

// kindsOfCommands are the commands that faults are drawn for. Their order is stable, as a seed
// requires.
func (p primitive) kindsOfCommands() []string {
	return append(slices.Sorted(maps.Keys(p.commands)), "subscribe", "script", "wait")
}

func (p primitive) match(kind string) func(cmd []string) bool {
	switch kind {
	case "subscribe":
		return redistest.Command("SUBSCRIBE")
	case "script":
		return scripts
	case "wait":
		return waits
	}
	return p.commands[kind]
}

// grant reports whether a command may grant something to an acquisition that has nothing.
func (p primitive) grant(cmd []string) bool {
	return slices.ContainsFunc(p.grants, func(kind string) bool { return p.commands[kind](cmd) })
}

func (f wireFault) inject(p primitive, m *machine) fault {
	match := p.match(f.command)
	if f.isOfHook() {
		hook := &hookFault{wireFault: f, match: match}
		m.rdb.AddHook(hook)
		return hook
	}
	rule := redistest.Rule{Skip: f.skip, Times: f.times, Match: match}
	action := f.action
	if f.command == "subscribe" {
		switch action { // go-redis writes under a mutex, which must not wait for virtual time
		case "delay request":
			action = "delay reply"
		case "fail after", "garble": // it would not read any further
			action = "cut reply"
		}
	}
	switch action {
	case "cut reply":
		rule.Action = redistest.CutReply()
	case "lose reply":
		rule.Action = redistest.LoseReply()
	case "cut request":
		rule.Action = redistest.CutRequest()
	case "delay reply":
		rule.Action = redistest.DelayReply(f.wait)
	case "delay request":
		rule.Action = redistest.DelayRequest(f.wait)
	case "swallow":
		rule.Action = redistest.Swallow()
	case "silence":
		rule.Action = redistest.SilenceBoth()
	case "refuse loading":
		rule.Action = redistest.Refuse("LOADING Redis is loading the dataset in memory")
	case "refuse oom":
		rule.Action = redistest.Refuse("OOM command not allowed when used memory > 'maxmemory'.")
	case "deny":
		rule.Action = redistest.Refuse("NOPERM User app has no permissions to access one of the keys used as arguments")
	case "fail after":
		rule.Action = redistest.FailAfter("ERR the proxy lost its mind")
	case "garble":
		rule.Action = redistest.FailAfter(":7")
	case "duplicate":
		rule.Action = redistest.Duplicate()
	case "duplicate but grants":
		// A copy of a grant may be granted again. Nobody would know of that grant until its lease
		// ends.
		rule.Match = func(cmd []string) bool { return match(cmd) && !p.grant(cmd) }
		rule.Action = redistest.Duplicate()
	case "hold back", "hold back but grants":
		if f.action != "hold back" {
			rule.Match = func(cmd []string) bool { return match(cmd) && !p.grant(cmd) }
		}
		rule.Action = redistest.HoldBack()
	default:
		panic(f.action)
	}
	return m.link.Inject(rule)
}
