package event

// Kind is what happened.
type Kind uint8

// Kinds of events. Each comment lists the fields that are set beside Kind, Time and Client.
const (
	// WaitBegan says that a call began to acquire a lock. A call that is refused before it begins
	// has no events: its name is not usable, or its context had ended before the call.
	//
	// Primitive, Name, Wait, Try, Units.
	WaitBegan Kind = iota + 1
	// WaitEnded says that the call ends, and how. The Result is one of [Acquired], [Busy],
	// [Cancelled], [Unavailable], [Refused], [AfterLoss], [Closed], [Aborted] and
	// [NotReplicated].
	//
	// Primitive, Name, Wait, Try, Units, Result, and Duration, the length of the wait. With
	// Acquired also Source, ID and Fence. Otherwise Err, the error of the call.
	WaitEnded
	// Queued says that a waiter has a place in a queue in Redis, or that its place has changed.
	//
	// Primitive, Name, Wait, Units, Position, Length.
	Queued
	// Woken says that a waiter asks Redis again, and why. The Result is one of [Message], [Poll]
	// and [LeaseEnd].
	//
	// Primitive, Name, Wait, Result.
	Woken
	// Released says that the last hold of a grant ended, by Unlock, UnlockAfter, Export, Release,
	// ReleaseAfter, Do or Close. If Redis did not confirm the release, Err says why. The client
	// then retries in the background, except after UnlockAfter, ReleaseAfter, Export and Close. In
	// these cases, the lock ends with its lease, or after the time for which Redis keeps it. An
	// Unlock or a Do may give up while another command of the hold hangs. Then the event comes when
	// the background has ended the hold, up to a lease later.
	//
	// Primitive, Name, ID, Fence, Units, Err, and Duration, from the grant to the end of the
	// release.
	Released
	// Lost says that a grant ended without its holder asking. The Result is one of [Unconfirmed],
	// [Gone], [MaxHold], [NoProgress] and [NotRenewed].
	//
	// Primitive, Name, ID, Fence, Units, Result, and Duration, from the grant to the loss.
	Lost
	// Leaked says that a hold became garbage without Unlock, or a permit without Release.
	//
	// Primitive, Name, ID, Fence, Units.
	Leaked
	// Renewed says how a command went that renews several leases. The Result is one of [Extended],
	// [Checked], [Gone] and [Failed]. If the leases have different results, there is an event for
	// each result.
	//
	// Primitive is Semaphore for permits, and 0 for mutexes. Result, Duration, which is the time
	// until the answer, and Count, the number of leases with that result. Err with Failed, if it is
	// the same for all.
	Renewed
	// Retried says that a command failed or got no answer in time, and that the client sends it
	// again.
	//
	// Primitive, Name, Err, and Duration, the time that the attempt took.
	Retried
	// LateGrant says that the client has released a grant that came when its caller had left.
	//
	// Primitive, Name, Wait, ID.
	LateGrant
	// Disconnected says that the connection for messages ended, or could not be made. That includes
	// a connection that answered and got no messages, which the client ended. The client makes a
	// new one, and waiters poll until then. No event says that it is there.
	//
	// Err.
	Disconnected
	// Dropped says that the observers were too slow, and have missed events of a primitive. They
	// have got all events before this one, and the next events are again complete.
	//
	// Primitive, Count, the number of missed events, and Waiting and Held, the counts of this
	// primitive of the client. An observer that counts sets its counts to them. If it observes
	// several clients, it keeps counts for each Client and Primitive.
	Dropped
)

// String returns the kind in words that are joined by underscores.
func (k Kind) String() string { return word(kinds, k) }

var kinds = []string{
	WaitBegan: "wait_began", WaitEnded: "wait_ended", Queued: "queued", Woken: "woken", Released: "released", Lost: "lost",
	Leaked: "leaked", Renewed: "renewed", Retried: "retried", LateGrant: "late_grant", Disconnected: "disconnected",
	Dropped: "dropped",
}

// word returns the word of a value, or "unknown".
func word[T ~uint8](words []string, v T) string {
	if int(v) < len(words) && words[v] != "" {
		return words[v]
	}
	return "unknown"
}
