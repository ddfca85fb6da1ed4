package watchdog

import (
	"context"
	"time"
)

// Result is what one renewal said of one lease.
type Result int8

const (
	// Unknown is no answer. It neither extends trust nor ends it.
	Unknown Result = iota
	// Renewed says the lease is ours and now lasts as long as asked.
	Renewed
	// Held says the lease is ours and was not extended.
	Held
	// Gone says the lease is not ours: definite, never a guess.
	Gone
)

// Renewal is one lease in a renewal batch.
type Renewal struct {
	Key   string        // what is leased, e.g. the lock's name
	ID    string        // who holds it
	Lease time.Duration // to extend to; 0: only look

	// Extended and Asked are when it was granted or last extended by a renewal, and when this one
	// is sent: both since the watchdog was made. Asked is Extended of the next renewal, if this one
	// extends the lease.
	Extended, Asked time.Duration
}

// Group says which leases may share a call: those of one kind and one hash slot. What the kinds are
// is up to the caller. It tells Renew which command to send.
type Group struct{ Kind, Slot int }

// Renew renews a batch of leases of one group. The answers are in the order of the requests. A
// lease that an error or a short slice leaves open is [Unknown]; answers that come with an error
// count. Renew is called from several goroutines at once. It must not keep or change batch, and
// should return when ctx ends. If it returns later, only [Renewed] counts. The watchdog recovers
// and logs a panic, and treats it as an error.
type Renew func(ctx context.Context, group Group, batch []Renewal) ([]Result, error)
