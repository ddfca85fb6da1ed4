package telemetry

import "strings"

// Type is a type of instruments.
type Type uint8

// Types of instruments.
const (
	Counter Type = iota + 1
	Histogram
	// UpDownCounter is a number of which the sum over all processes makes sense.
	UpDownCounter
	// Gauge is a number of which the sum over all processes makes no sense.
	Gauge
)

// Keys of labels. NameKey is that of the lock's name.
const (
	primitiveKey = "primitive"
	outcomeKey   = "outcome"
	tryKey       = "try"
	sourceKey    = "source"
	reasonKey    = "reason"
	leaseKey     = "lease"
	resultKey    = "result"
	causeKey     = "cause"
	scriptKey    = "script"
	errorTypeKey = "error.type"
	NameKey      = "name"
)

// Instrument describes an instrument. Its name and its labels are those of OpenTelemetry.
type Instrument struct {
	Name    string
	Unit    string // UCUM: seconds, or what is counted, in braces
	Type    Type
	Help    string
	Labels  []string
	Buckets []float64 // upper bounds of a histogram
	// IsNamed says that the instrument has the label NameKey if names have labels.
	IsNamed bool
	// Pulled says how the value gets here if no event has it.
	Pulled string
}

// PrometheusName returns the name that Prometheus has for the instrument. It is the one into which
// OpenTelemetry translates Name.
func (i *Instrument) PrometheusName() string {
	name := PrometheusLabel(i.Name)
	if i.Unit == seconds {
		name += "_seconds"
	}
	if i.Type == Counter {
		name += "_total"
	}
	return name
}

// PrometheusLabel returns the key that Prometheus has for a label.
func PrometheusLabel(key string) string { return strings.ReplaceAll(key, ".", "_") }

// ID is the index of an instrument in Instruments.
type ID uint8

// The instruments.
const (
	WaitDuration ID = iota
	HoldDuration
	Waiting
	Held
	OldestHoldAge
	Grants
	Reentries
	Losses
	LeakedHolds
	LateGrants
	UnconfirmedReleases
	Renewals
	RenewalDuration
	Wakeups
	Retries
	PubSubDisconnects
	DroppedEvents
	QueueLength
	QueueOldestWait
	QueueReadFailures
	ScriptDuration
	BatchSize
	Count // of instruments
)

const seconds = "s"

const (
	fromHook   = "hook"
	fromQueues = "queues"
)

var (
	// longTimes are for what may take as long as work takes. shortTimes are for what Redis should
	// answer soon.
	longTimes  = []float64{0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	shortTimes = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5}
	sizes      = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
)

// Instruments are all instruments, by their ids.
var Instruments = [Count]Instrument{
	WaitDuration: {
		Name: "redlatch.wait.duration", Unit: seconds, Type: Histogram, Buckets: longTimes, IsNamed: true,
		Labels: []string{primitiveKey, outcomeKey, tryKey},
		Help:   "How long calls took to acquire a lock or a permit, or to fail, without re-entries.",
	},
	HoldDuration: {
		Name: "redlatch.hold.duration", Unit: seconds, Type: Histogram, Buckets: longTimes, IsNamed: true,
		Labels: []string{primitiveKey, outcomeKey},
		Help:   "How long grants lasted, from the grant to the end of the release or to the loss.",
	},
	Waiting: {
		Name: "redlatch.waiting", Unit: "{request}", Type: UpDownCounter, Labels: []string{primitiveKey},
		Help: "Calls that wait for a lock or a permit now.",
	},
	Held: {
		Name: "redlatch.held", Unit: "{lock}", Type: UpDownCounter, Labels: []string{primitiveKey},
		Help: "Locks and permits that are held now.",
	},
	OldestHoldAge: {
		Name: "redlatch.oldest_hold.age", Unit: seconds, Type: Gauge, IsNamed: true, Labels: []string{primitiveKey},
		Help: "The age of the oldest grant that is held now.",
	},
	Grants: {
		Name: "redlatch.grants", Unit: "{grant}", Type: Counter, IsNamed: true, Labels: []string{primitiveKey, sourceKey},
		Help: "Grants that a call returned, by where they came from. The source handoff is a local handoff.",
	},
	Reentries: {
		Name: "redlatch.reentries", Unit: "{hold}", Type: Counter, IsNamed: true, Labels: []string{primitiveKey},
		Help: "Holds of locks that their owner had already.",
	},
	Losses: {
		Name: "redlatch.losses", Unit: "{lock}", Type: Counter, IsNamed: true, Labels: []string{primitiveKey, reasonKey},
		Help: "Locks and permits that were lost, by the reason.",
	},
	LeakedHolds: {
		Name: "redlatch.leaked_holds", Unit: "{hold}", Type: Counter, IsNamed: true, Labels: []string{primitiveKey},
		Help: "Holds and permits that became garbage without a release.",
	},
	LateGrants: {
		Name: "redlatch.late_grants", Unit: "{grant}", Type: Counter, IsNamed: true, Labels: []string{primitiveKey},
		Help: "Grants that came after their caller had left, and that the client released.",
	},
	UnconfirmedReleases: {
		Name: "redlatch.unconfirmed_releases", Unit: "{release}", Type: Counter, IsNamed: true, Labels: []string{primitiveKey, errorTypeKey},
		Help: "Releases that Redis did not confirm to the call.",
	},
	Renewals: {
		Name: "redlatch.renewals", Unit: "{lease}", Type: Counter, Labels: []string{leaseKey, resultKey},
		Help: "Leases in commands that renew them, by the result.",
	},
	RenewalDuration: {
		Name: "redlatch.renewal.duration", Unit: seconds, Type: Histogram, Buckets: shortTimes, Labels: []string{leaseKey, resultKey},
		Help: "How long commands that renew leases took. A command counts once for each result that its leases have.",
	},
	Wakeups: {
		Name: "redlatch.wakeups", Unit: "{wakeup}", Type: Counter, IsNamed: true, Labels: []string{primitiveKey, causeKey},
		Help: "How often waiters asked Redis again, by the cause.",
	},
	Retries: {
		Name: "redlatch.retries", Unit: "{attempt}", Type: Counter, IsNamed: true, Labels: []string{primitiveKey, errorTypeKey},
		Help: "Attempts that failed or got no answer in time, and that the client repeated.",
	},
	PubSubDisconnects: {
		Name: "redlatch.pubsub.disconnects", Unit: "{connection}", Type: Counter, Labels: []string{errorTypeKey},
		Help: "Connections for messages that ended or could not be made. The client makes a new one each time.",
	},
	DroppedEvents: {
		Name: "redlatch.dropped_events", Unit: "{event}", Type: Counter, Labels: []string{primitiveKey},
		Help: "Events that the observers missed because they were too slow. Counters and histograms lack them.",
	},
	QueueLength: {
		Name: "redlatch.queue.length", Unit: "{waiter}", Type: Gauge, Labels: []string{primitiveKey, NameKey}, Pulled: fromQueues,
		Help: "Waiters in the queue in Redis, of all processes.",
	},
	QueueOldestWait: {
		Name: "redlatch.queue.oldest_wait", Unit: seconds, Type: Gauge, Labels: []string{primitiveKey, NameKey}, Pulled: fromQueues,
		Help: "How long the first waiter in the queue in Redis has waited, by the clock of the server and that of this process.",
	},
	QueueReadFailures: {
		Name: "redlatch.queue.read_failures", Unit: "{read}", Type: Counter, Labels: []string{primitiveKey, NameKey, errorTypeKey}, Pulled: fromQueues,
		Help: "Queues that could not be read when the metrics were collected.",
	},
	ScriptDuration: {
		Name: "redlatch.script.duration", Unit: seconds, Type: Histogram, Buckets: shortTimes, Labels: []string{scriptKey, resultKey}, Pulled: fromHook,
		Help: "How long go-redis took to send a script and read its answer, or those of its pipeline.",
	},
	BatchSize: {
		Name: "redlatch.batch.size", Unit: "{script}", Type: Histogram, Buckets: sizes, Pulled: fromHook,
		Help: "Scripts of redlatch that go-redis sent together.",
	},
}
