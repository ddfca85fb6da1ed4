package redlatch

import (
	"context"
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/fair"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/construct"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/oneline"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/reentrant"
	"github.com/redlatch/redlatch/semaphore"
)

// Client makes locks on one Redis. A program needs one Client for each Redis that it locks on, for
// as long as it runs. A Client has an id, one watchdog for all its locks, and one connection for
// messages about releases. In a cluster it has one more such connection for each master with locks
// that it waits for.
//
// Methods may be called concurrently. If New did not make the Client, for instance if it is nil,
// every use of its locks returns a *lockerr.ConfigError.
type Client struct {
	session          *session.Session
	registry         *mutex.Registry
	mutexes          construct.Mutexes
	fair             construct.Mutexes
	semaphores       construct.Semaphores
	defaults         settings.Lock // an interval that was not set follows the lease of each lock
	completeDefaults *settings.Lock
	prefix           string
	closed           chan struct{}
}

// New makes a client on a go-redis client, with the settings of rdb for addresses, credentials, TLS
// and pools. The caller still owns rdb, and closes it after this client. New does no I/O and starts
// no goroutine.
//
// Commands of this client share the pool of rdb with those of the program. A blocking command
// (BLPOP, XREAD with BLOCK) occupies a connection for as long as it waits. Renewals wait behind it
// if the pool has no other connection. Give blocking commands their own go-redis client, or add one
// connection to PoolSize for each of them. The default of ten for each processor is ample for
// locks. PoolTimeout should be well below the lease.
//
// Set ContextTimeoutEnabled in the options of rdb. go-redis then returns in time from a command
// that it has sent. With a *redis.Client or *redis.ClusterClient on a fast link, a lone call also
// sends its command in its own goroutine, which is faster.
//
// The error is a *lockerr.ConfigError that names the value which is not usable. New refuses a
// redis.Ring. A Ring decides for each key which server to ask, and changes its mind when a server
// fails, so two clients can ask different servers.
//
// With a redis.ClusterClient, the client makes go-redis reload the nodes of the cluster after a
// command without an answer, at most twice a second. So the locks of a master that failed are
// served again soon after its replica has taken over, whatever ClusterStateReloadInterval is. If a
// wrapper has several cluster clients, New uses the first only.
//
// After its first renewal, the client asks each server once whether it may evict locks (INFO
// memory), and logs a warning if so. It does so in the background, and says nothing if it may not
// ask.
//
// New looks for a redis.ClusterClient and a redis.Ring inside of structs that wrap one. A wrapper
// that hides a cluster client altogether works too. The client recognises the cluster when it first
// refuses a renewal with CROSSSLOT, and no lock is lost by that. New does not refuse a Ring that is
// hidden in this way.
func New(rdb redis.UniversalClient, options ...Option) (*Client, error) {
	if isNil(rdb) {
		return nil, &lockerr.ConfigError{Setting: "redis client", Value: rdb, Reason: "must not be nil"}
	}
	if node.HasRing(rdb) {
		return nil, &lockerr.ConfigError{Setting: "redis client", Value: fmt.Sprintf("%T", rdb), Reason: "a ring may ask another server for the same lock"}
	}
	cfg := defaultConfig()
	for _, option := range options {
		if option == nil {
			return nil, settings.ErrNilOption
		}
		option.applyClient(&cfg)
	}
	servers := node.DeploymentOf(rdb)
	checkReplicas(&servers, &cfg.lock)
	complete, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	s := session.New(session.Config{
		Redis: rdb, Deployment: servers, Prefix: cfg.prefix, Log: cfg.log, Description: cfg.description,
		FenceRetention: cfg.fenceRetention, Observers: cfg.observers,
	})
	if servers.KnownCluster {
		s.FoundCluster()
	}
	registry := mutex.NewRegistry(s)
	return &Client{
		session: s, registry: registry, mutexes: construct.Reentrant(registry), fair: construct.Fair(registry), semaphores: construct.Semaphore(s),
		defaults: cfg.lock, completeDefaults: complete, prefix: cfg.prefix, closed: make(chan struct{}),
	}, nil
}

// isNil also recognises a nil pointer in the interface, the usual result of an ignored error.
func isNil(rdb redis.UniversalClient) bool {
	v := reflect.ValueOf(rdb)
	return rdb == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// Mutex returns the reentrant mutex of a name. It is cheap and does no I/O: make it where it is
// needed. Options given here override those of the client. If the name or an option is not usable,
// every use of the mutex returns a *lockerr.ConfigError.
//
// A name is text of at most 512 bytes, including the client's prefix. It has no control characters
// and no invisible characters (joiners, marks of direction). Braces, if any, must form exactly one
// non-empty {tag}, as Redis Cluster defines them. A name must not begin with
// "redisson_lock_token:", as the keys of fences do. It must not begin like the keys of queues and
// semaphores either, for instance with "redlatch:queue:".
func (c *Client) Mutex(name string, options ...LockOption) *reentrant.Mutex {
	if !c.isValid() {
		return new(reentrant.Mutex)
	}
	return c.mutexes.Mutex(c.prefix+name, c.lockSettings(options)).(*reentrant.Mutex)
}

// FairMutex returns the mutex of a name that is granted in order of arrival, across all processes.
// It guards the same key as Mutex: the two exclude each other, and the context of a hold of either
// re-enters both. Waiters of the plain mutex have no place in the queue, and come after all waiters
// in it. Package fair says when to use which. Names and options are as for Mutex.
func (c *Client) FairMutex(name string, options ...LockOption) *fair.Mutex {
	if !c.isValid() {
		return new(fair.Mutex)
	}
	return c.fair.Mutex(c.prefix+name, c.lockSettings(options)).(*fair.Mutex)
}

// Semaphore returns the semaphore of a name. At most limit units of its permits live at once,
// across all processes. All processes pass the same limit, which Redis stores; see
// semaphore.Semaphore.Resize for changing it. A semaphore has nothing in common with a mutex of the
// same name. Names and options are as for Mutex.
func (c *Client) Semaphore(name string, limit int, options ...LockOption) *semaphore.Semaphore {
	if !c.isValid() {
		return new(semaphore.Semaphore)
	}
	return c.semaphores.Semaphore(c.prefix+name, limit, c.lockSettings(options)).(*semaphore.Semaphore)
}

// isValid reports whether New made the client. Every use of a lock of any other client returns an
// error, as for a bad name.
func (c *Client) isValid() bool { return c != nil && c.session != nil }

// lockSettings returns the client's settings, overridden by those of one lock. Locks without
// options of their own share the settings.
func (c *Client) lockSettings(options []LockOption) *settings.Lock {
	if len(options) == 0 {
		return c.completeDefaults
	}
	set := c.defaults
	for _, option := range options {
		if option == nil {
			set.Err = settings.ErrNilOption
			break
		}
		option.applyLock(&set)
	}
	checkReplicas(&c.session.Deployment, &set)
	return &set
}

// checkReplicas sets the error of settings for replicas that these servers cannot do. WAIT is about
// the writes of its own connection, and a cluster client would send it to any node. So a WAIT needs
// the client of one server.
func checkReplicas(servers *node.Deployment, l *settings.Lock) {
	switch {
	case l.Err != nil, l.Replicas <= 0:
	case servers.Master == nil:
		l.Err = &lockerr.ConfigError{Setting: "number of replicas", Option: "WithReplicas", Value: l.Replicas, Reason: "needs a *redis.Client or a *redis.ClusterClient, or a struct that contains one"}
	case servers.ReadTimeout > 0 && l.ReplicaTimeout >= servers.ReadTimeout:
		l.Err = &lockerr.ConfigError{Setting: "replica timeout", Option: "WithReplicas", Value: l.ReplicaTimeout, Reason: "must be below the ReadTimeout of the redis client, which is " + servers.ReadTimeout.String()}
	}
}

// Close ends the client. Goroutines that wait for a lock return ErrClosed. Close releases all
// holds, and their contexts end with ErrClosed. It waits for background work.
//
// Close returns when all that is done, or within a moment after ctx ends. If ctx has already ended,
// the first Close still has two seconds, the time of one command. Locks that Close could not
// release in this time are left to their leases, and the error says so. That includes a lock whose
// Unlock, Release or Do has returned before Redis confirmed the release, because the client goes on
// with that in the background. It does not include an UnlockAfter, ReleaseAfter or Export that
// failed, nor a Lock or Acquire that got no answer.
//
// After Close every method returns ErrClosed. A repeated Close waits for the first one and returns
// nil, or the error of ctx if that ends first.
//
// A wait callback or a log handler may call Close, also with the context of a hold. Close does not
// wait for wait callbacks that are running, and waits only an instant for the log handler. But a
// hook, a dialer or a credentials provider of go-redis must not call Close, because it runs inside
// a command that Close waits for.
func (c *Client) Close(ctx context.Context) error {
	if !c.isValid() {
		return settings.ErrNoClient
	}
	if err := session.CheckContext(ctx); err != nil {
		return err
	}
	session.TouchContext(ctx) // a panic comes before anything is closed
	if !c.session.BeginClose() {
		return c.awaitClosed(ctx)
	}
	defer close(c.closed)
	if ctx.Err() != nil { // often the end of ctx is why the program calls Close
		ended := session.DetachedWithTimeout(ctx, settings.DefaultAttemptTimeout)
		defer ended.Release()
		ctx = ended
	}
	ctx, cancel := session.WithoutOwnCancel(ctx, c.session) // it may be that of a hold, which Close ends
	defer cancel()
	held := c.held() // the session closes: nothing new comes
	return oneline.Errors(acquisition.CloseAll(ctx, held), c.session.FinishClose(ctx))
}

// held returns all locks and permits that the client has.
func (c *Client) held() []*acquisition.Acquisition {
	return append(c.registry.Held(), c.semaphores.Held()...)
}

// awaitClosed waits for the first Close. If that has already ended, it returns nil even if ctx has
// ended.
func (c *Client) awaitClosed(ctx context.Context) error {
	select {
	case <-c.closed:
		return nil
	default:
	}
	select {
	case <-c.closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
