package simulation_test

import (
	"slices"
	"time"
)

// hardship is what a class of schedules has to survive. A field that is not set gets one value that
// does no harm; see filled.
type hardship struct {
	crowds       [][]int // goroutines of clients
	lease, every []time.Duration
	ownLeases    []time.Duration // of locks, instead of that of their client; 0: none
	unrenewed    bool            // the lease is so long that nobody has to renew it
	expires      bool            // as in schedule
	heartbeats   []time.Duration
	keeps        []time.Duration // retentions
	differ       bool            // clients have different settings
	names        []string        // names of locks that clients use at the same time
	prefixes     []string        // of clients
	delays       []int           // of links, in hundredths of the lease or the heartbeat, whichever is shorter
	hoards       []int           // number of locks that a client holds besides
	pauses       []time.Duration // of holders and waiters
	unlockLimits []time.Duration // of an Unlock, before it is called again
	jitter       bool            // some replies take longer than others
	counts       bool            // the test checks the holds that Redis counts
	turns        []time.Duration // hold times of clients that take the lock again and again; none: no client does
	keeping      []time.Duration // for which Redis keeps a lock after its last hold; none: no client wants that
	masters      int             // of a cluster; 0: there is one server
	fansOut      bool            // some clients let others work with their context
	busy         bool            // clients also wait for another lock, so they listen all the time
	fewest       int             // least number of faults in one schedule
	skips        int             // number of commands that a fault may skip first; 0: one
	actions      []string        // on the wire
	events       []string
	instants     []time.Duration // of events
	waits        []time.Duration // of faults and events
	steps        []time.Duration // of the server's clock
	longest      time.Duration   // time that a schedule may take, without the leases of crashed clients
}

func ms(all ...int) []time.Duration {
	d := make([]time.Duration, len(all))
	for i, n := range all {
		d[i] = time.Duration(n) * time.Millisecond
	}
	return d
}

var (
	onTheWire  = []string{"cut reply", "cut request", "delay reply", "delay request", "swallow", "silence", "refuse loading", "refuse oom"}
	late       = []string{"duplicate", "hold back"}
	ofClusters = []string{"slot migrates", "slot migrates", "slot moves", "node fails", "node stalls", "cluster is down"}
	toLinks    = []string{"kill connections", "kill subscriber", "deafen", "deafen"}
)

// nothingExpires has a lease so long that nothing can end it. Every answer has to be right.
var nothingExpires = hardship{
	lease: ms(120_000), every: ms(40_000, 400),
	ownLeases:    ms(0, 90_000, 200_000),
	heartbeats:   ms(30_000), // a lost message costs a third of it
	pauses:       ms(1, 20, 300, 1000, 3000),
	unlockLimits: ms(0, 20, 400),
	counts:       true,
	fewest:       1,
	actions:      slices.Concat([]string{"duplicate but grants", "hold back but grants", "fail after", "garble", "deny"}, hookFaults, onTheWire),
	events:       slices.Concat([]string{"close", "close in an outage", "cut off", "late messages", "stale replica", "deny publish"}, toLinks),
	waits:        ms(5, 300, 1500, 5000), // an Unlock gives up in an outage of five seconds
	longest:      time.Minute,            // half a lease: a waiter that waits for the end of a lease has missed a poll
}

// linksFlap interrupts links while clients release locks, and lets replies overtake each other. An
// Unlock that failed is called again.
var linksFlap = hardship{
	lease: ms(120_000), every: ms(0), unrenewed: true,
	ownLeases:    ms(0, 200_000),
	heartbeats:   ms(30_000),
	pauses:       ms(1, 20, 100),
	turns:        ms(20, 50),
	unlockLimits: ms(20, 60),
	jitter:       true,
	fewest:       1,
	skips:        3,
	actions:      []string{"delay reply", "lose reply", "fail after", "cut reply", "refuse loading"},
	events:       []string{"cut off", "cut off", "kill connections"},
	instants:     ms(20, 50, 90, 150, 250),
	waits:        ms(30, 100, 300),
	longest:      time.Minute,
}

// leasesExpire has leases as short as the faults. Holds end by themselves, and late commands may
// come too late.
var leasesExpire = hardship{
	lease: ms(1000), every: ms(0), expires: true,
	ownLeases:  ms(0, 300, 2500),
	heartbeats: ms(400, 1000),
	pauses:     ms(1, 100, 400, 1200),
	fewest:     1,
	actions:    slices.Concat(onTheWire, late),
	events:     slices.Concat([]string{"close", "die", "cut off", "black hole"}, toLinks),
	waits:      ms(100, 300, 900, 1100, 2500),
	longest:    2 * time.Minute,
}

// keysVanish removes keys and sets the server's clock. No lock survives that, but fences do.
var keysVanish = hardship{
	lease: ms(1000), every: ms(0), expires: true,
	ownLeases:  ms(0, 300, 2500),
	heartbeats: ms(400, 1000),
	pauses:     ms(1, 100, 400, 1200),
	fewest:     1,
	actions:    slices.Concat(onTheWire, late),
	turns:      ms(50, 300),
	events:     slices.Concat([]string{"delete", "delete", "force release", "remove waiter", "flush", "clock forward", "clock back", "close"}, toLinks),
	waits:      ms(100, 300, 900, 1100, 5000),
	steps:      ms(100, 300, 900, 1100, 5000),
	longest:    2 * time.Minute,
}

// heartbeatsEnd has faults that last longer than heartbeats, but not longer than leases. So a grant
// may end before its waiter knows of it. Messages come late, and strangers forge some.
var heartbeatsEnd = hardship{
	crowds: [][]int{{2, 1}, {2, 2}, {3, 1}, {3, 2}, {2, 1, 1}},
	busy:   true,
	lease:  ms(2000, 3000), every: ms(0), expires: true,
	ownLeases:  ms(0, 5000),
	heartbeats: ms(400),
	pauses:     ms(1, 100, 400, 1200),
	turns:      ms(50, 300, 700),
	fewest:     1,
	skips:      3,
	actions:    []string{"lose reply", "lose reply", "delay reply", "cut reply", "hold back"},
	events:     []string{"late messages", "late messages", "forge", "remove waiter", "die", "cut off", "black hole", "kill subscriber"},
	waits:      ms(600, 1200, 2500),
	longest:    2 * time.Minute,
}

// optionsDiffer gives every client a lease, heartbeat and retention of its own. They may be any
// legal ones. Some links are slow: a round trip takes nearly as long as a renewal interval, or as
// the time between two heartbeat commands.
var optionsDiffer = hardship{
	lease: ms(200, 600, 3000), every: ms(0), expires: true, differ: true,
	heartbeats: ms(100, 400, 5000, 5000),
	keeps:      ms(0, 1000, 1000),
	delays:     []int{0, 0, 0, 10, 25, 34, 40},
	pauses:     ms(1, 100, 400, 1200, 3000),
	turns:      ms(50, 300, 1200),
	actions:    onTheWire,
	events:     slices.Concat([]string{"die", "die", "cut off", "cut off", "close"}, toLinks),
	waits:      ms(100, 300, 900, 2500),
	longest:    2 * time.Minute,
}

// namesAreRelated has locks whose names have much in common, and clients that work with the context
// of a hold. Each lock has to behave as if it were alone.
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

// clockSteps sets the server's clock back by much, or forward by little, while waiters crash.
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

// muchIsHeld has many holds, on links that fall silent when clients release the holds.
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

// kindsMeet has plain mutexes that use local handoff without a gap for others. Meanwhile fair
// mutexes queue, and clients of Redisson come in between.
var kindsMeet = hardship{
	crowds: [][]int{{1, 1}, {2, 1}, {1, 3}, {2, 3}, {1, 2, 1}, {2, 1, 2}, {1, 3, 2}, {1, 2, 1, 2}},
	lease:  ms(1000), every: ms(0), expires: true,
	ownLeases:  ms(0, 300, 2500),
	heartbeats: ms(400, 1000),
	pauses:     ms(1, 100, 400, 1200),
	turns:      ms(0, 1, 20, 300),
	actions:    slices.Concat(onTheWire, late),
	events:     slices.Concat([]string{"close", "die", "cut off", "black hole"}, toLinks),
	waits:      ms(100, 300, 900, 1100, 2500),
	longest:    2 * time.Minute,
}

// serverStands lets the server answer nobody for a while, longer than heartbeats. Live waiters keep
// their places in the queue.
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

// locksAreKept lets Redis keep locks after their last holds, for a time that is shorter or longer
// than a lease. Late commands of those holds must not change it.
var locksAreKept = hardship{
	lease: ms(1000), every: ms(0, 50), expires: true,
	ownLeases:    ms(0, 300, 2500),
	heartbeats:   ms(400, 1000),
	pauses:       ms(1, 100, 400, 1200),
	keeping:      ms(1, 300, 2500, 4000),
	unlockLimits: ms(0, 60, 400),
	jitter:       true,
	fewest:       1,
	skips:        3,
	actions:      slices.Concat(onTheWire, late, hookFaults),
	events:       slices.Concat([]string{"close", "die", "cut off", "black hole"}, toLinks),
	waits:        ms(100, 300, 900, 1100, 2500),
	longest:      2 * time.Minute,
}

// slotsMove has a cluster. The slot of the lock moves to another node at once or key by key, its
// node dies and another one has all of its data, or nobody gets an answer. Nothing can end, so
// every answer has to be right.
var slotsMove = hardship{
	masters: 3,
	lease:   ms(120_000), every: ms(40_000, 400),
	ownLeases:    ms(0, 90_000, 200_000),
	heartbeats:   ms(30_000),
	pauses:       ms(1, 20, 300, 1000, 3000),
	turns:        ms(20, 300),
	unlockLimits: ms(0, 20, 400),
	counts:       true,
	fewest:       1,
	actions:      slices.Concat([]string{"duplicate but grants", "fail after"}, onTheWire),
	events:       slices.Concat([]string{"kill connections"}, ofClusters, ofClusters),
	waits:        ms(5, 300, 1500, 6000),
	longest:      time.Minute,
}

// failoversForget has a cluster whose replicas lag behind. A failover brings back what was deleted,
// and forgets what was written. No lock survives that, but fences do.
var failoversForget = hardship{
	masters: 3,
	lease:   ms(1000), every: ms(0), expires: true,
	heartbeats: ms(400, 1000),
	pauses:     ms(1, 100, 400, 1200),
	turns:      ms(50, 300),
	actions:    onTheWire,
	events:     slices.Concat([]string{"failover forgets", "failover forgets", "failover forgets", "slot migrates", "node fails", "close"}, toLinks),
	waits:      ms(5, 100, 300, 900, 2500),
	longest:    2 * time.Minute,
}

// filled returns the hardship with values for the fields that are not set.
func (h hardship) filled() hardship {
	h.crowds = append(h.crowds, unlessSet(h.crowds, []int{1, 1}, []int{1, 1}, []int{2, 1}, []int{2, 1}, []int{2, 2}, []int{1, 1, 1}, []int{3, 1}, []int{1, 1, 1, 1})...)
	h.ownLeases = append(h.ownLeases, unlessSet(h.ownLeases, 0)...)
	h.keeps = append(h.keeps, unlessSet(h.keeps, 0)...)
	h.unlockLimits = append(h.unlockLimits, unlessSet(h.unlockLimits, 0)...)
	h.names = append(h.names, unlessSet(h.names, name)...)
	h.prefixes = append(h.prefixes, unlessSet(h.prefixes, "")...)
	h.delays = append(h.delays, unlessSet(h.delays, 0)...)
	h.hoards = append(h.hoards, unlessSet(h.hoards, 0)...)
	h.instants = append(h.instants, unlessSet(h.instants, ms(0, 1, 50, 200, 450, 900)...)...)
	return h
}

func without(all []string, what string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == what })
}

// forgets reports whether Redis may drop keys as soon as nobody uses them.
func (h hardship) forgets() bool {
	return slices.ContainsFunc(h.keeps, func(d time.Duration) bool { return d != 0 })
}

// losesPlaces reports whether waiters are sure to lose places in many schedules, because each fault
// lasts longer than the shortest heartbeat.
func (h hardship) losesPlaces() bool { return slices.Min(h.waits) > slices.Min(h.heartbeats) }

func unlessSet[T any](given []T, defaults ...T) []T {
	if len(given) > 0 {
		return nil
	}
	return defaults
}
