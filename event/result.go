package event

// Result says how something went. The kind of the event says which results it may have.
type Result uint8

// Results of events.
const (
	// Of a wait, see [WaitEnded].

	// Acquired says that the call returns a hold or a permit.
	Acquired Result = iota + 1
	// Busy says that somebody else had the lock, or that too few units were free. A try found it
	// so, or a wait ended by WithWaitTimeout or by the deadline of the context. Busy also says that
	// an operator removed the waiter from the queue.
	Busy
	// Cancelled says that the program cancelled the context while somebody else had the lock. Or
	// the context ended after the call began and before it asked Redis. If Redis did not answer,
	// the result is Unavailable instead.
	Cancelled
	// Unavailable says that Redis could not be asked, or did not answer in time. If the program
	// cancelled the context during such an outage, the result is Unavailable and not Cancelled.
	Unavailable
	// Refused says that Redis refused the command, or that the limit of a semaphore does not fit.
	Refused
	// AfterLoss says that the call returned ErrLost: the context was that of a hold of the lock
	// that was lost, Redis lost the grant before replicas had it, or an exported lock had ended.
	AfterLoss
	// Closed says that the client was closed.
	Closed
	// Aborted says that the call did not return: code of the program panicked, or ended the
	// goroutine.
	Aborted
	// NotReplicated says that fewer replicas than WithReplicas asks for acknowledged the grant.
	NotReplicated

	// Of a loss, see [Lost]. Gone is also a result of renewals.

	// Unconfirmed says that Redis did not confirm the lease in time.
	Unconfirmed
	// Gone says that Redis does not have the lease any more: it expired, was removed or was taken
	// over.
	Gone
	// MaxHold says that the maximum hold time is over.
	MaxHold
	// NoProgress says that the work reported no progress in time.
	NoProgress
	// NotRenewed says that the lease is over, and was not to be renewed.
	NotRenewed

	// Of renewals, see [Renewed].

	// Extended says that Redis has extended the leases.
	Extended
	// Checked says that Redis has the leases, and was not to extend them.
	Checked
	// Failed says that Redis did not answer, or refused.
	Failed

	// Of a wake-up, see [Woken].

	// Message says that a message came, or that one may have been missed: Redis has only now
	// confirmed the subscription, or the connection for messages was lost.
	Message
	// Poll says that no message came for a while. For a plain mutex, this is the poll bound.
	Poll
	// LeaseEnd says that the lease of the holder must have ended.
	LeaseEnd
)

// String returns the result in words that are joined by underscores.
func (r Result) String() string { return word(results, r) }

var results = []string{
	Acquired: "acquired", Busy: "busy", Cancelled: "cancelled", Unavailable: "unavailable", Refused: "refused",
	AfterLoss: "after_loss", Closed: "closed", Aborted: "aborted", NotReplicated: "not_replicated",
	Unconfirmed: "unconfirmed", Gone: "gone", MaxHold: "max_hold", NoProgress: "no_progress", NotRenewed: "not_renewed",
	Extended: "extended", Checked: "checked", Failed: "failed",
	Message: "message", Poll: "poll", LeaseEnd: "lease_end",
}

// Source says how a lock was acquired.
type Source uint8

// Sources of a hold.
const (
	// Redis says that Redis granted it.
	Redis Source = iota + 1
	// Handoff says that another goroutine of this client handed it over with its release.
	Handoff
	// Reentry says that the owner had the lock already.
	Reentry
	// Attached says that an exported lock was attached.
	Attached
)

// String returns the source in one word.
func (s Source) String() string { return word(sources, s) }

var sources = []string{Redis: "redis", Handoff: "handoff", Reentry: "reentry", Attached: "attached"}
