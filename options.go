package redlatch

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/key"
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
	lock           settings.Lock
	prefix         string
	log            *slog.Logger
	description    string
	fenceRetention time.Duration
	observers      []event.Observer
}

func defaultConfig() config {
	return config{
		lock:           settings.Default,
		log:            slog.Default(),
		description:    describeProcess(),
		fenceRetention: time.Hour,
	}
}

// describeProcess names this process in the way an operator would look for it.
func describeProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	if key.CheckDescription(host) != nil {
		host = strconv.QuoteToASCII(host) // a host may have any name
	}
	return fmt.Sprintf("%s pid %d", host, os.Getpid())
}

// complete returns the settings of a lock without options of its own. The error is a
// *lockerr.ConfigError.
func (c *config) complete() (*settings.Lock, error) {
	if err := key.CheckDescription(c.description); err != nil {
		return nil, err
	}
	if err := key.CheckPrefix(c.prefix); err != nil {
		return nil, err
	}
	switch {
	case slices.Contains(c.observers, nil):
		return nil, &lockerr.ConfigError{Setting: "observer", Option: "WithObserver", Value: nil, Reason: "must not be nil"}
	case c.log == nil:
		return nil, &lockerr.ConfigError{Setting: "logger", Option: "WithLogger", Value: c.log, Reason: "must not be nil"}
	case c.fenceRetention != 0 && c.fenceRetention < minRetention || c.fenceRetention%time.Millisecond != 0:
		return nil, &lockerr.ConfigError{Setting: "fence retention", Option: "WithFenceRetention", Value: c.fenceRetention, Reason: "must be whole milliseconds, and 0 (for ever) or at least " + minRetention.String()}
	}
	set := c.lock
	return &set, set.Complete()
}

// minRetention is longer than the steps by which a time service usually corrects a clock. The
// stored fence protects against such steps.
const minRetention = time.Second

type option func(*config)

func (o option) applyClient(c *config) { o(c) }

type lockOption func(*settings.Lock)

func (o lockOption) applyLock(s *settings.Lock) { o(s) }
func (o lockOption) applyClient(c *config)      { o(&c.lock) }

// WithLease sets how long Redis keeps a lock that is not renewed, and so how long a crashed holder
// delays others. A longer lease survives longer outages of Redis and longer pauses of the holder. A
// shorter one frees the locks of a crashed holder sooner, and costs more renewals. The lease does
// not limit how long a lock may be held, because the watchdog renews it. At least 100 ms and at
// most 365 days, in whole milliseconds. Defaults to 30 s.
func WithLease(d time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.Lease = d })
}

// WithRenewInterval sets the time between renewals. At least 10 ms and at most half the
// lease. Defaults to a third of the lease, so that two renewals may fail before trust
// ends.
func WithRenewInterval(every time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.RenewInterval, s.DefaultInterval = every, false })
}

// WithoutRenewal ends a hold with its lease: the watchdog only checks whether the lock is still
// there. Use it for work that must not outlive a fixed time.
func WithoutRenewal() LockOption {
	return lockOption(func(s *settings.Lock) { s.Renew = false })
}

// WithMaxHold sets a time after which the watchdog stops renewing a hold. It bounds a
// holder that hangs in a live process: the hold ends at most one lease after that time.
// At least 100 ms. Defaults to 0, which means no bound.
func WithMaxHold(d time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.MaxHold = d })
}

// WithProgressTimeout makes the client renew a hold only while its work reports progress. If the
// work calls ReportProgress of the hold or the permit less often than every d, the watchdog stops
// renewing it. The hold is then lost at most one lease later, unless the work reports before that.
// It bounds work that hangs in a live process, without a bound for work that goes on. The time of
// the grant counts as progress, and a re-entry does not. WithMaxHold applies too. At least 100 ms.
// Defaults to 0, which means that nothing has to be reported. Inside of Do, get the hold from
// HoldFrom of the mutex, or the permit from PermitFrom of the semaphore.
func WithProgressTimeout(d time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.ProgressTimeout = d })
}

// WithWaitTimeout sets how long Lock, Acquire, Do and redlatch.Call wait for the lock, and for
// Redis if it does not answer. After that they return the error that they return at a deadline: a
// *lockerr.NotAcquiredError if somebody else has the lock, and lockerr.ErrUnavailable or
// ErrIndeterminate if Redis did not answer. errors.Is does not find context.DeadlineExceeded in it,
// because the context of the caller has not ended.
//
// It bounds only the wait. The context of the hold, and the context that Do gives to its function,
// do not end when the time is over. If the context of the call ends first, the wait ends with it.
// The time includes the wait for replicas (WithReplicas). If it ends there, the error is
// lockerr.ErrIndeterminate, and the client releases the lock in the background. A try (TryLock,
// TryAcquire, TryDo) does not wait for the lock, and waits for Redis for this time or five seconds,
// whichever is shorter. The option does not change Attach.
//
// If the time is shorter than that of WithSelfDeadlockWarning, the client logs no such warning. If
// it holds the lock itself, the error says where it acquired it.
//
// Each call has this time. To share one time among several calls, use WithWaitDeadline. If both are
// set, the earlier end counts.
//
// At least 1 ms. Defaults to 0, which means that only the context ends the wait.
func WithWaitTimeout(d time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.WaitTimeout = d })
}

// WithPollInterval sets the longest time that a waiter of a plain mutex goes without asking
// Redis. Normally a message wakes the waiter. Polling is for lost messages, and for
// servers that do not allow pub/sub. With a shorter poll, a waiter finds a missed release
// sooner. Each poll costs one command per client and name. While a goroutine of the same
// client holds the lock, its other goroutines do not ask Redis. They learn of a ForceRelease when
// the next renewal of that hold fails (WithRenewInterval). At least 10 ms. Defaults to 2 s.
func WithPollInterval(d time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.PollInterval = d })
}

// WithLocalHandoffTime sets for how long the goroutines of one client may hand a plain mutex to
// each other before the client releases it for other clients. The time starts when the client
// learns that Redis has granted it the lock. A goroutine that holds the lock when the time ends
// keeps it until it calls Unlock. A longer time gives more throughput, because a local handoff
// costs one command and no message. With a shorter time, other clients wait less. With 0, each
// Unlock releases the lock. It must not be negative. Defaults to 10 ms.
func WithLocalHandoffTime(d time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.LocalHandoffTime = d })
}

// WithSelfDeadlockWarning sets when the client logs the self-deadlock warning: after a wait
// this long for a lock that the same client holds. The client logs each such wait once,
// and says where the lock was acquired. Usually the program waits for itself: it holds
// the lock and locks it again with a context other than that of its hold. To fix that,
// pass on the context of the hold ([lock.Hold.Context], or the one that Do gives), or make
// one owner of the whole call chain ([WithOwner]). The client also logs goroutines that
// wait for each other. 0 turns the warning off; otherwise at least 10 ms. Defaults to 10 s.
func WithSelfDeadlockWarning(after time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.SelfDeadlockAfter = after })
}

// WithReplicas makes a lock count only when n replicas of its master have it. After Redis has
// granted the lock, Redis waits until n replicas have acknowledged that (WAIT), for the timeout at
// most. Until then no call returns the hold or its fence. The grant may come from Redis, from a
// queue, or from another goroutine of the client. A re-entry needs no replicas.
//
// If fewer replicas acknowledge the lock in time, the client releases it as Unlock does, and Lock
// returns a *lockerr.NotReplicatedError. It does not try again. If Redis does not answer, Lock
// returns lockerr.ErrIndeterminate after the timeout and the time of one command, and the
// background releases the lock. lockerr.ErrLost says that Redis lost the lock meanwhile, for
// instance by a failover. If ctx ends or the wait timeout is over, Lock returns at once. The
// timeout of the WAIT is never longer than the wait timeout.
//
// A failover is then less likely to forget a lock. It still can, because it may promote a replica
// that lacks the lock. Renewals and releases reach replicas later, as without the option.
//
// A grant costs one more round trip, and the time that replicas need. The call occupies a
// connection of the go-redis client meanwhile, for the rest of the timeout also if ctx was
// cancelled. If many goroutines lock at once, PoolSize must leave connections for renewals. WAIT
// needs a permission (docs/security.md). With a cluster client, hooks see these commands only if
// they belong to the client of the node.
//
// 0 for n turns it off. The timeout is whole milliseconds, at least one, at most half the lease,
// and below the ReadTimeout of the go-redis client. That must be a *redis.Client or a
// *redis.ClusterClient, or a struct in which New finds one. Defaults to 0.
func WithReplicas(n int, timeout time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.Replicas, s.ReplicaTimeout = n, timeout })
}

// WithHeartbeat sets how long a waiter in a queue counts as alive after its last
// heartbeat. Crashed waiters delay the others until this long after the last crash, at most, or if
// all had crashed before, until this long after the next one came. A waiter
// sends a heartbeat every third of this time, or of its lease if that is shorter. With a longer
// time, waiters keep their places through longer outages. With a shorter one,
// crashed waiters are dropped sooner, at the cost of more commands.
//
// All waiters of one name should have the same heartbeat timeout. If one is much longer than
// the others, the server cannot distinguish its own outage from the death of the waiters
// with shorter ones. Those waiters then lose their places and queue again. A crashed
// waiter with the longest heartbeat timeout delays the others by up to one and a half of it.
//
// At least 100 ms and at most 24 hours, in whole milliseconds. Defaults to 5 s.
func WithHeartbeat(d time.Duration) LockOption {
	return lockOption(func(s *settings.Lock) { s.Heartbeat = d })
}

// WithWaitCallback sets a function that Lock calls while it waits in a queue. Lock calls it
// when it gets its place, and when a heartbeat shows that the position, the length of the
// queue or the holder has changed. The waiting goroutine calls it, so Lock does not
// return while the callback runs, and the callback must return soon. If the lock is granted while
// the callback blocks, the grant ends after at most one heartbeat and the lock goes to the next
// waiter. The blocked waiter queues again when the callback returns. Plain mutexes have no
// queue and do not call it.
func WithWaitCallback(callback func(lock.Waiting)) LockOption {
	return lockOption(func(s *settings.Lock) {
		s.Notice = nil
		if callback != nil {
			s.Notice = func(id string, refusal lockerr.NotAcquiredError, requeued bool) {
				callback(lock.Waiting{
					Name: refusal.Name, ID: id, Position: refusal.Position, Length: refusal.Length, Holder: refusal.Holder,
					Description: refusal.Description, Since: refusal.Since, Remaining: refusal.Remaining, Requeued: requeued,
				})
			}
		}
	})
}

// WithPrefix puts a prefix before the names of all locks, for instance to give a service its own
// part of the keyspace by ACL. Only the key of a mutex begins with it. In the keys of fences,
// queues and permits it stands behind a brace, as in redisson_lock_token:{shop:orders}. The page
// docs/security.md has the whole rule. Java clients need the same prefix. The rules are those of a
// name. Braces in the prefix must form their own {tag}. Defaults to none.
func WithPrefix(prefix string) Option {
	return option(func(c *config) { c.prefix = prefix })
}

// WithLogger sets the logger for rare events that no error reports. The client calls the handler in
// a goroutine of its own, one line after the other. The handler may block, and it may call Close:
// only Close waits for it, for 100 ms at most. If more than 1,000 lines wait, the client drops
// further lines. Defaults to slog.Default.
func WithLogger(log *slog.Logger) Option {
	return option(func(c *config) { c.log = log })
}

// WithObserver adds an observer, which is notified of waits, holds, renewals and losses, for
// metrics, traces and logs. Package event has the events. Observers run in a goroutine of their
// own, so no call waits for them. Given several times, each observer is notified of all events.
// Without an observer, an event costs one comparison, and no memory. Defaults to none.
func WithObserver(o event.Observer) Option {
	return option(func(c *config) { c.observers = append(c.observers, o) })
}

// WithDescription sets the description of this client's holders and waiters. Inspect,
// Queue and NotAcquiredError show it, so it must not contain secrets. Empty means no
// description. At most 256 bytes of text, without control characters or invisible
// characters. Defaults to the host name and the process id.
func WithDescription(text string) Option {
	return option(func(c *config) { c.description = text })
}

// WithFenceRetention sets how long Redis keeps the last fence of a lock after its last use; 0 keeps
// it for ever. New fences grow even without the stored one, because they are never below the
// server's clock. The stored fence protects against a clock that is set back by up to this time,
// and against nothing else. Each name that was locked costs Redis the memory of one small key for
// that long, and for up to an hour more. A lock that is held for longer keeps its fence, and a
// fence lives for two leases at least.
//
// Set 0 if Redisson's RFencedLock uses the same names, because Java counts from the stored fence.
// If Redisson or an earlier setting keeps a fence for ever, it stays so. If clients of one lock
// have different retentions, the longest one counts. Redis keeps the limit of a semaphore for the
// same time, for up to an hour more, and at least until its last permit ends.
//
// At least 1 s, in whole milliseconds. Defaults to an hour.
func WithFenceRetention(d time.Duration) Option {
	return option(func(c *config) { c.fenceRetention = d })
}
