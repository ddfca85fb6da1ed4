package redlatch

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
)

// Option is an option of a [Client]; see New.
type Option interface{ applyClient(*config) }

// LockOption is an option of one lock. Given to New, it is the default of all
// locks of the client.
type LockOption interface {
	Option
	applyLock(*settings.Lock)
}

type config struct {
	lock        settings.Lock
	prefix      string
	log         *slog.Logger
	description string
	keepFence   time.Duration
}

func defaultConfig() config {
	return config{
		lock:        settings.Default,
		log:         slog.Default(),
		description: describeProcess(),
		keepFence:   7 * 24 * time.Hour,
	}
}

// describeProcess says which process this is, as an operator would look for it.
func describeProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s pid %d", host, os.Getpid())
}

func (c *config) check() error {
	const longest = 256
	switch {
	case c.log == nil:
		return &lockerr.ConfigError{What: "logger", Value: c.log, Why: "must not be nil"}
	case len(c.description) > longest:
		return &lockerr.ConfigError{What: "description", Value: c.description, Why: "must not be longer than 256 bytes"}
	case c.keepFence < 0 || c.keepFence%time.Millisecond != 0:
		return &lockerr.ConfigError{What: "fence retention", Value: c.keepFence, Why: "must be whole milliseconds and not negative"}
	}
	set := c.lock // checked as it is: an interval that was not set follows the lease of each lock
	return set.Complete()
}

type option func(*config)

func (o option) applyClient(c *config) { o(c) }

type lockOption func(*settings.Lock)

func (o lockOption) applyLock(s *settings.Lock) { o(s) }
func (o lockOption) applyClient(c *config)      { o(&c.lock) }

// WithLease sets how long Redis keeps a lock that is not renewed, and so how
// long a crashed holder delays others. A longer lease bears longer outages of
// Redis and longer pauses of the holder; a shorter one frees a dead holder's
// locks sooner and costs more renewals. It does not limit how long a lock may be
// held: the watchdog renews it. At least 100 ms, in whole milliseconds. Defaults
// to 30 s.
func WithLease(d time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.Lease = d })
}

// WithRenewal sets the time between renewals. At most half the lease. Defaults to
// a third of the lease, so that two renewals may fail before trust ends.
func WithRenewal(every time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.Every = orInvalid(every) })
}

// orInvalid keeps a zero that was asked for from meaning "not set".
func orInvalid(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// WithoutRenewal ends a hold with its lease: the watchdog only looks whether the
// lock is still there. For work that must not outlive a fixed time.
func WithoutRenewal() LockOption {
	return lockOption(func(s *settings.Lock) { s.Renew = false })
}

// WithMaxHold sets a time after which a hold is not renewed any more, so that a
// holder that hangs, but whose process lives, ends within that time and a lease.
// Defaults to 0, no such end.
func WithMaxHold(d time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.MaxHold = d })
}

// WithPoll sets the longest time that a waiter goes without asking Redis. Waiters
// are woken by messages; the poll is for those that are lost, and for servers
// that allow none. Shorter finds a lost release sooner and costs one command
// each time, for each process and name. Defaults to 2 s.
func WithPoll(d time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.Poll = d })
}

// WithTurns sets how many grants in a row may go to goroutines of one process
// before the lock is released for others too. More give more throughput, since
// handing over inside a process costs one command and no message; fewer let
// other processes wait less. At least 1. Defaults to 8.
func WithTurns(n int) LockOption {
	return lockOption(func(s *settings.Lock) { s.Turns = n })
}

// WithSelfWaitWarning sets how long a wait for a lock that this very client holds
// may last before it is logged, once, with where the lock was acquired. The
// usual cause is a context without the owner: the program waits for itself. 0
// turns it off. Defaults to 10 s.
func WithSelfWaitWarning(after time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.Suspect = after })
}

// WithHeartbeat sets how long a waiter of a queue is taken for living without a
// sign of it, and so how long those that died while they waited delay the others,
// all of them together. A waiter gives a sign every third of it: longer bears
// longer outages without a word to the user, shorter passes over the dead sooner
// and costs more. All who wait for one name should have the same: beside a much
// longer one, an outage of the server cannot be told from the death of those with
// the shorter, and they queue again. At least 100 ms, in whole milliseconds.
// Defaults to 5 s.
func WithHeartbeat(d time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.Heartbeat = d })
}

// WithWaitNotice has notice called by a Lock that waits in a queue: when it has
// got its place, and when the place, the length or the holder have changed, as
// its heartbeats bring it to light. It is called by the goroutine that waits and
// must return soon: the lock may come meanwhile. A grant that finds it blocked ends
// after a heartbeat, or a lease at most, and goes on to the next; the waiter queues
// again when notice returns. Plain mutexes have no queue and call nothing.
func WithWaitNotice(notice func(lock.Waiting)) LockOption {
	return lockOption(func(s *settings.Lock) {
		s.Notice = nil
		if notice != nil {
			s.Notice = func(w settings.Waiting) { notice(lock.Waiting(w)) }
		}
	})
}

// WithPrefix puts a prefix before the names of all locks, for instance to give a
// service its own part of the keyspace by ACL. Java clients need the same.
// Defaults to none.
func WithPrefix(prefix string) Option {
	return option(func(c *config) { c.prefix = prefix })
}

// WithLogger sets where the rare things are logged that nobody is told by an
// error. Defaults to slog.Default.
func WithLogger(log *slog.Logger) Option {
	return option(func(c *config) { c.log = log })
}

// WithDescription sets what a holder says of itself, to be shown by inspection
// and in refusals; empty for nothing. At most 256 bytes; no secrets. Defaults to
// the name of the host and the process id.
func WithDescription(text string) Option {
	return option(func(c *config) { c.description = text })
}

// WithFenceRetention sets how long the last fence of a lock is kept in Redis
// after its last use; 0 keeps it for ever. Fences also grow when it is gone,
// because they are never below the server's clock; what is kept guards against
// a clock that is set back. Set 0 where Redisson's RFencedLock uses the same
// names: Java counts from what is kept. A fence that is kept for ever already,
// by Redisson or an earlier setting, stays so. Defaults to 7 days.
func WithFenceRetention(d time.Duration) Option {
	return option(func(c *config) { c.keepFence = d })
}
