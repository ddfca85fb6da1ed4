package simulation_test

import (
	"slices"
	"time"
)

// hardship is what a class of schedules has to bear. What is not set has one value
// that does no harm; see filled.
type hardship struct {
	crowds       [][]int // goroutines of clients
	lease, every []time.Duration
	unrenewed    bool // so long a lease that nobody has to renew it
	expires      bool // as of schedule
	heartbeats   []time.Duration
	keeps        []time.Duration // retentions
	differ       bool            // clients have different settings
	names        []string        // of locks, which clients use side by side
	prefixes     []string        // of clients
	hoards       []int           // locks that a client has besides
	pauses       []time.Duration // of holders and waiters
	patience     []time.Duration // of an Unlock, which is tried again then
	jitter       bool            // some replies take longer than others
	counts       bool            // the holds that Redis counts are looked at
	turns        []time.Duration // for which some take the lock again and again; none: nobody does
	fansOut      bool            // some have others work with their context
	busy         bool            // clients wait for another lock meanwhile, and so listen all the while
	fewest       int             // faults of one schedule
	skips        int             // commands that a fault may spare first; 0: one
	actions      []string        // on the wire
	events       []string
	instants     []time.Duration // of events
	waits        []time.Duration // of faults and events
	steps        []time.Duration // of the server's clock
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
	toLinks   = []string{"kill connections", "kill subscriber", "deafen", "deafen"}
)

// A lease so long that nothing can end it: every answer has to be right.
var nothingExpires = hardship{
	lease: ms(120_000), every: ms(40_000, 400),
	heartbeats: ms(30_000), // a lost message costs a third of it
	pauses:     ms(1, 20, 300, 1000),
	patience:   ms(0, 20, 400),
	counts:     true,
	fewest:     1,
	actions:    slices.Concat([]string{"duplicate but grants", "fail after", "garble"}, onTheWire),
	events:     slices.Concat([]string{"close", "cut off", "late messages", "stale replica"}, toLinks),
	waits:      ms(5, 300, 1500),
	longest:    time.Minute, // half a lease: who waits for its end has missed a poll
}

// Links come and go while locks are given back, and replies overtake each other: an
// Unlock that failed is tried again.
var linksFlap = hardship{
	lease: ms(120_000), every: ms(0), unrenewed: true,
	heartbeats: ms(30_000),
	pauses:     ms(1, 20, 100),
	turns:      ms(20, 50),
	patience:   ms(20, 60),
	jitter:     true,
	fewest:     1,
	skips:      3,
	actions:    []string{"delay reply", "lose reply", "fail after", "cut reply", "refuse loading"},
	events:     []string{"cut off", "cut off", "kill connections"},
	instants:   ms(20, 50, 90, 150, 250),
	waits:      ms(30, 100, 300),
	longest:    time.Minute,
}

// Leases as short as the faults are long: holds end by themselves, and what is late may
// come too late.
var leasesExpire = hardship{
	lease: ms(1000), every: ms(0), expires: true,
	heartbeats: ms(400, 1000),
	pauses:     ms(1, 100, 400, 1200),
	fewest:     1,
	actions:    slices.Concat(onTheWire, late),
	events:     slices.Concat([]string{"close", "die", "cut off", "black hole"}, toLinks),
	waits:      ms(100, 300, 900, 1100, 2500),
	longest:    2 * time.Minute,
}

// Keys vanish and the server's clock jumps, which no lock survives. Fences do.
var keysVanish = hardship{
	lease: ms(1000), every: ms(0), expires: true,
	heartbeats: ms(400, 1000),
	pauses:     ms(1, 100, 400, 1200),
	fewest:     1,
	actions:    slices.Concat(onTheWire, late),
	events:     slices.Concat([]string{"delete", "delete", "force release", "flush", "clock forward", "clock back", "close"}, toLinks),
	waits:      ms(100, 300, 900, 1100, 5000),
	steps:      ms(100, 300, 900, 1100, 5000),
	longest:    2 * time.Minute,
}

// Faults outlast heartbeats and not leases, so that what waiters were granted may end
// before they hear of it; messages come late, and strangers forge some.
var heartbeatsEnd = hardship{
	crowds: [][]int{{2, 1}, {2, 2}, {3, 1}, {3, 2}, {2, 1, 1}},
	busy:   true,
	lease:  ms(2000, 3000), every: ms(0), expires: true,
	heartbeats: ms(400),
	pauses:     ms(1, 100, 400, 1200),
	turns:      ms(50, 300, 700),
	fewest:     1,
	skips:      3,
	actions:    []string{"lose reply", "lose reply", "delay reply", "cut reply", "hold back"},
	events:     []string{"late messages", "late messages", "forge", "die", "cut off", "black hole", "kill subscriber"},
	waits:      ms(600, 1200, 2500),
	longest:    2 * time.Minute,
}

// Every client has its own lease, heartbeat and retention: any that are legal.
var optionsDiffer = hardship{
	lease: ms(200, 600, 3000), every: ms(0), expires: true, differ: true,
	heartbeats: ms(100, 400, 5000, 5000),
	keeps:      ms(0, 1000, 1000),
	pauses:     ms(1, 100, 400, 1200, 3000),
	turns:      ms(50, 300, 1200),
	actions:    onTheWire,
	events:     slices.Concat([]string{"die", "die", "cut off", "cut off", "close"}, toLinks),
	waits:      ms(100, 300, 900, 2500),
	longest:    2 * time.Minute,
}

// Locks of names that have much in common, and others who work with the context of a
// hold: each lock has to be as if it were alone.
var namesAreRelated = hardship{
	lease: ms(120_000), every: ms(0), unrenewed: true,
	heartbeats: ms(30_000),
	names:      []string{"orders", "{orders}", "a{orders}"},
	prefixes:   []string{"", "", "a"}, differ: true,
	pauses:  ms(1, 20, 300, 1000),
	fansOut: true,
	actions: onTheWire,
	events:  append([]string{"close"}, toLinks...),
	waits:   ms(5, 300, 1500),
	longest: time.Minute,
}

// The server's clock is set back by much, or forward by little, while waiters die.
var clockSteps = hardship{
	lease: ms(1000), every: ms(0), expires: true,
	heartbeats: ms(400, 1000),
	pauses:     ms(1, 100, 400, 1200),
	actions:    []string{"cut reply", "cut request", "delay reply"},
	events:     []string{"clock back", "clock back", "die", "die"},
	instants:   ms(50, 450, 900, 1700, 2600),
	waits:      ms(20, 100),
	steps:      []time.Duration{3 * time.Minute, 10 * time.Minute},
	longest:    time.Minute,
}

// Many holds, on links that fall silent when they are to be given back.
var muchIsHeld = hardship{
	lease: ms(30_000), every: ms(0), unrenewed: true, expires: true,
	heartbeats: ms(1000),
	hoards:     []int{0, 0, 40},
	pauses:     ms(1, 400),
	actions:    []string{"cut reply", "delay reply"},
	events:     []string{"hang and close", "hang and close", "close"},
	waits:      ms(100, 1000),
	longest:    time.Minute,
}

// Plain mutexes take turns that leave others no gap, while fair ones queue and clients
// of Redisson come in between.
var kindsMeet = hardship{
	crowds: [][]int{{1, 1}, {2, 1}, {1, 3}, {2, 3}, {1, 2, 1}, {2, 1, 2}, {1, 3, 2}, {1, 2, 1, 2}},
	lease:  ms(1000), every: ms(0), expires: true,
	heartbeats: ms(400, 1000),
	pauses:     ms(1, 100, 400, 1200),
	turns:      ms(0, 1, 20, 300),
	actions:    slices.Concat(onTheWire, late),
	events:     slices.Concat([]string{"close", "die", "cut off", "black hole"}, toLinks),
	waits:      ms(100, 300, 900, 1100, 2500),
	longest:    2 * time.Minute,
}

// The server answers nobody for a while, longer than heartbeats: whoever lives keeps its
// place in the queue.
var serverStands = hardship{
	crowds: [][]int{{1, 1}, {2, 1}, {2, 2}, {3, 1}, {1, 1, 1}, {1, 1, 1, 1}},
	lease:  ms(1000, 5000), every: ms(0), expires: true,
	heartbeats: ms(1000),
	pauses:     ms(1, 100, 400, 1200),
	turns:      ms(50, 300, 700),
	actions:    []string{"cut reply", "delay reply"},
	events:     []string{"standstill", "standstill", "die"},
	waits:      ms(100, 1300, 2500, 4000),
	longest:    2 * time.Minute,
}

// filled is with what was not set.
func (h hardship) filled() hardship {
	h.crowds = append(h.crowds, unlessSet(h.crowds, []int{1, 1}, []int{1, 1}, []int{2, 1}, []int{2, 1}, []int{2, 2}, []int{1, 1, 1}, []int{3, 1}, []int{1, 1, 1, 1})...)
	h.keeps = append(h.keeps, unlessSet(h.keeps, 0)...)
	h.patience = append(h.patience, unlessSet(h.patience, 0)...)
	h.names = append(h.names, unlessSet(h.names, name)...)
	h.prefixes = append(h.prefixes, unlessSet(h.prefixes, "")...)
	h.hoards = append(h.hoards, unlessSet(h.hoards, 0)...)
	h.instants = append(h.instants, unlessSet(h.instants, ms(0, 1, 50, 200, 450, 900)...)...)
	return h
}

// forgets reports whether keys may go as soon as nobody uses them.
func (h hardship) forgets() bool {
	return slices.ContainsFunc(h.keeps, func(d time.Duration) bool { return d != 0 })
}

// losesPlaces reports whether faults outlast heartbeats.
func (h hardship) losesPlaces() bool { return slices.Max(h.waits) > 2*slices.Min(h.heartbeats) }

func unlessSet[T any](given []T, defaults ...T) []T {
	if len(given) > 0 {
		return nil
	}
	return defaults
}
