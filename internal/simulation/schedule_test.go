package simulation_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/workload"
	"github.com/redlatch/redlatch/lua"
)

// schedule is everything that is drawn. It is drawn before anything runs, so
// that a seed or a failfile brings it back whole.
type schedule struct {
	lease, every time.Duration
	heartbeat    time.Duration
	longest      time.Duration
	expires      bool // leases may end by themselves
	turns        int
	slow         bool // the wire takes time, and clients differ in it
	warm         bool // the server knows the scripts
	clients      [][][]workload.Step
	faults       []wireFault
	events       []event
}

// wireFault hits commands of one kind on the link of one client.
type wireFault struct {
	link        int
	command     string
	action      string
	skip, times int
	wait        time.Duration
}

// event happens at an instant, whatever the clients are doing.
type event struct {
	at   time.Duration
	what string
	link int
	wait time.Duration

	which int // of the keys that may vanish
}

// hardship is what a class of schedules has to bear.
type hardship struct {
	lease, every []time.Duration
	expires      bool // as of schedule
	heartbeats   []time.Duration
	pauses       []time.Duration // of holders and waiters
	actions      []string        // on the wire
	events       []string
	waits        []time.Duration // of faults
	longest      time.Duration   // that a schedule may take, the leases of dead clients apart
}

func ms(all ...int) []time.Duration {
	d := make([]time.Duration, len(all))
	for i, n := range all {
		d[i] = time.Duration(n) * time.Millisecond
	}
	return d
}

var (
	onTheWire = []string{"cut reply", "cut request", "delay reply", "delay request", "swallow", "silence", "refuse loading", "refuse oom"}
	late      = []string{"duplicate", "hold back"}
	toLinks   = []string{"kill connections", "kill subscriber", "deafen"}
)

// A lease so long that nothing can end it: every answer has to be right.
var nothingExpires = hardship{
	lease: ms(120_000), every: ms(40_000, 400),
	heartbeats: ms(30_000), // a lost message costs a third of it
	pauses:     ms(1, 20, 300, 1000),
	actions:    append([]string{"duplicate but grants"}, onTheWire...),
	events:     append([]string{"close"}, toLinks...),
	waits:      ms(5, 300, 1500),
	longest:    time.Minute, // half a lease: who waits for its end has missed a poll
}

// Leases as short as the faults are long: holds end by themselves, and what is late may
// come too late.
var leasesExpire = hardship{
	lease: ms(1000), every: ms(0), expires: true,
	heartbeats: ms(400, 1000),
	pauses:     ms(1, 100, 400, 1200),
	actions:    append(append([]string{}, onTheWire...), late...),
	events:     append([]string{"close", "die", "cut off", "black hole"}, toLinks...),
	waits:      ms(100, 300, 900, 1100, 2500),
	longest:    2 * time.Minute,
}

// Keys vanish and the server's clock jumps, which no lock survives. Fences do.
var keysVanish = hardship{
	lease: ms(1000), every: ms(0), expires: true,
	heartbeats: ms(400, 1000),
	pauses:     ms(1, 100, 400, 1200),
	actions:    append(append([]string{}, onTheWire...), late...),
	events:     append([]string{"delete", "delete", "flush", "clock forward", "clock back", "close"}, toLinks...),
	waits:      ms(100, 300, 900, 1100, 5000),
	longest:    2 * time.Minute,
}

func draw(t *rapid.T, p primitive, h hardship) schedule {
	s := schedule{
		lease:     rapid.SampledFrom(h.lease).Draw(t, "lease"),
		every:     rapid.SampledFrom(h.every).Draw(t, "renewal"),
		heartbeat: rapid.SampledFrom(h.heartbeats).Draw(t, "heartbeat"),
		longest:   h.longest,
		expires:   h.expires,
		turns:     rapid.SampledFrom([]int{1, 2, 8}).Draw(t, "turns"),
		slow:      rapid.Bool().Draw(t, "slow wire"),
		warm:      rapid.SampledFrom([]bool{true, true, true, false}).Draw(t, "warm server"),
	}
	crowds := rapid.SampledFrom([][]int{{1, 1}, {1, 1}, {2, 1}, {2, 1}, {2, 2}, {1, 1, 1}, {3, 1}, {1, 1, 1, 1}}).Draw(t, "goroutines of clients")
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) workload.Step { return drawStep(t, p, h) }), 1, 2)
	for c, goroutines := range crowds {
		var client [][]workload.Step
		for g := range goroutines {
			plan := steps.Draw(t, fmt.Sprintf("client %d, goroutine %d", c, g))
			if hold := rapid.SampledFrom(ms(0, 0, 0, 100, 500, 1500)).Draw(t, "hold first"); hold > 0 {
				plan = append([]workload.Step{{Verb: workload.Acquire, Units: p.drawUnits(t)}, {Verb: workload.Sleep, For: hold}}, plan...)
			}
			if rapid.SampledFrom([]bool{false, false, false, false, false, false, true}).Draw(t, "tries on and on") {
				plan = slices.Repeat(p.tryOn(), 8)
			}
			client = append(client, p.patient(plan, slices.Max(h.pauses)))
		}
		s.clients = append(s.clients, client)
	}
	link := rapid.IntRange(0, len(crowds)-1)
	s.faults = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) wireFault { return drawFault(t, p, h, link) }), 1, 2).Draw(t, "faults")
	s.events = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) event { return drawEvent(t, h, link) }), 0, 2).Draw(t, "events")
	if slices.ContainsFunc(s.events, func(e event) bool { return e.what == "flush" }) {
		// Fences that are forgotten and a clock that is set back: not promised.
		s.events = slices.DeleteFunc(s.events, func(e event) bool { return e.what == "clock back" })
	}
	return s
}

// tryOn is one who takes every chance, as nobody may who comes after others.
func (p primitive) tryOn() []workload.Step {
	return []workload.Step{{Verb: workload.Try, Units: p.one()}, {Verb: workload.Unlock}, {Verb: workload.Sleep, For: 40 * time.Millisecond}}
}

// one is the number of units of the least request: none of a mutex, which has no units.
func (p primitive) one() int {
	if p.units == 1 {
		return 0
	}
	return 1
}

func drawStep(t *rapid.T, p primitive, h hardship) workload.Step {
	verbs := []workload.Verb{
		workload.Acquire, workload.Acquire, workload.Acquire, workload.Cancel, workload.Try,
		workload.Unlock, workload.Unlock, workload.UnlockFirst, workload.UnlockLate, workload.Sleep, workload.Sleep, workload.Work,
	}
	if len(p.resizes) > 0 {
		verbs = append(verbs, workload.Resize, workload.Resize)
	}
	s := workload.Step{Verb: rapid.SampledFrom(verbs).Draw(t, "verb")}
	pause := rapid.SampledFrom(h.pauses)
	switch s.Verb {
	case workload.Resize:
		s.Units = rapid.SampledFrom(p.resizes).Draw(t, "limit")
	case workload.Cancel, workload.Sleep, workload.Work:
		s.For = pause.Draw(t, "for")
	case workload.Acquire: // without a limit too: nobody may wait for ever
		if rapid.Bool().Draw(t, "limited") {
			s.For = pause.Draw(t, "for")
		}
	}
	switch s.Verb {
	case workload.Acquire, workload.Cancel, workload.Try:
		s.Units = p.drawUnits(t)
	}
	return s
}

// drawUnits is how many an acquire wants, 0 of a mutex.
func (p primitive) drawUnits(t *rapid.T) int {
	if p.one() == 0 {
		return 0
	}
	return rapid.IntRange(1, p.units).Draw(t, "units")
}

// patient limits the waits of one who may have units and wants more: two who do that
// may wait for each other. A mutex is entered again.
func (p primitive) patient(plan []workload.Step, most time.Duration) []workload.Step {
	for i := range plan {
		if i > 0 && p.units > 1 && plan[i].Verb == workload.Acquire && plan[i].For == 0 {
			plan[i].For = most
		}
	}
	return plan
}

func drawFault(t *rapid.T, p primitive, h hardship, link *rapid.Generator[int]) wireFault {
	return wireFault{
		link:    link.Draw(t, "link"),
		command: rapid.SampledFrom(append(p.kinds(), "acquire", "release")).Draw(t, "command"),
		action:  rapid.SampledFrom(h.actions).Draw(t, "action"),
		skip:    rapid.IntRange(0, 1).Draw(t, "skip"),
		times:   rapid.IntRange(1, 2).Draw(t, "times"),
		wait:    rapid.SampledFrom(h.waits).Draw(t, "wait"),
	}
}

func drawEvent(t *rapid.T, h hardship, link *rapid.Generator[int]) event {
	return event{
		at:   rapid.SampledFrom(ms(0, 1, 50, 200, 450, 900)).Draw(t, "at"),
		what: rapid.SampledFrom(h.events).Draw(t, "what"),
		link: link.Draw(t, "link"),
		wait: rapid.SampledFrom(h.waits).Draw(t, "wait"),

		which: rapid.IntRange(0, 11).Draw(t, "which"),
	}
}

// runs matches the commands of one script.
func runs(script string) func(cmd []string) bool {
	return func(cmd []string) bool { return lua.Runs(cmd) == script }
}

var scripts = redistest.Command("EVAL", "EVALSHA")

// kinds are the kinds of commands that faults are drawn for, in an order that stays,
// as a seed demands.
func (p primitive) kinds() []string {
	return append(slices.Sorted(maps.Keys(p.commands)), "subscribe", "script")
}

func (p primitive) match(kind string) func(cmd []string) bool {
	switch kind {
	case "subscribe":
		return redistest.Command("SUBSCRIBE")
	case "script":
		return scripts
	}
	return p.commands[kind]
}

// grant reports whether a command may grant something to an acquisition that has
// nothing.
func (p primitive) grant(cmd []string) bool {
	return slices.ContainsFunc(p.grants, func(kind string) bool { return p.commands[kind](cmd) })
}

// butResizes leaves resizes out: one that comes late sets the limit back to what it
// says, as lua/semaphore/resize.lua has it under "Twice", and then more units may be
// out than the limit that was set last.
func (p primitive) butResizes(match func(cmd []string) bool) func(cmd []string) bool {
	resize, has := p.commands["resize"]
	if !has {
		return match
	}
	return func(cmd []string) bool { return match(cmd) && !resize(cmd) }
}

func (f wireFault) inject(p primitive, link *redistest.Virtual) *redistest.Fault {
	match := p.match(f.command)
	rule := redistest.Rule{Skip: f.skip, Times: f.times, Match: match}
	action := f.action
	if f.command == "subscribe" && action == "delay request" {
		action = "delay reply" // go-redis writes under a mutex, which must not wait for virtual time
	}
	switch action {
	case "cut reply":
		rule.Action = redistest.CutReply()
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
	case "duplicate":
		rule.Match = p.butResizes(match)
		rule.Action = redistest.Duplicate()
	case "duplicate but grants":
		// A copy of a grant may be granted once more, which nobody would know of
		// before its lease ends.
		rule.Match = func(cmd []string) bool { return match(cmd) && !p.grant(cmd) }
		rule.Action = redistest.Duplicate()
	case "hold back":
		rule.Match = p.butResizes(match)
		rule.Action = redistest.HoldBack()
	default:
		panic(f.action)
	}
	return link.Inject(rule)
}
