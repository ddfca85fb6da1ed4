package redlatch

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

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
// as long as it runs. A Client has an id, one watchdog for all its locks, and one connection for messages about
// releases. In a cluster it has one more such connection for each master with locks that it waits for.
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
	servers          servers
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
// Set ContextTimeoutEnabled in the options of rdb. go-redis then returns in time from a command that
// it has sent. With a *redis.Client or *redis.ClusterClient on a fast link, a lone call also sends its
// command in its own goroutine, which is faster.
//
// The error is a *lockerr.ConfigError that names the value which is not usable. New refuses a
// redis.Ring. A Ring decides for each key which server to ask, and changes its mind when a server
// fails, so two clients can ask different servers.
//
// With a redis.ClusterClient, the client makes go-redis reload the nodes of the cluster after a command without
// an answer, at most twice a second. So the locks of a master that failed are served again soon after its replica
// has taken over, whatever ClusterStateReloadInterval is. If a wrapper has several cluster clients, New uses the
// first only.
//
// After its first renewal, the client asks each server once whether it may evict locks (INFO memory), and
// logs a warning if so. It does so in the background, and says nothing if it may not ask.
//
// New looks for a redis.ClusterClient and a redis.Ring inside of structs that wrap one. A wrapper
// that hides a cluster client altogether works too. The client recognises the cluster when it first
// refuses a renewal with CROSSSLOT, and no lock is lost by that. New does not refuse a Ring that is
// hidden in this way.
func New(rdb redis.UniversalClient, options ...Option) (*Client, error) {
	if isNil(rdb) {
		return nil, &lockerr.ConfigError{Setting: "redis client", Value: rdb, Reason: "must not be nil"}
	}
	if find(rdb, reflect.TypeFor[*redis.Ring]()).IsValid() {
		return nil, &lockerr.ConfigError{Setting: "redis client", Value: fmt.Sprintf("%T", rdb), Reason: "a ring may ask another server for the same lock"}
	}
	cfg := defaultConfig()
	for _, option := range options {
		if option == nil {
			return nil, settings.ErrNilOption
		}
		option.applyClient(&cfg)
	}
	known := knownServers(rdb)
	known.check(&cfg.lock)
	complete, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	conf := session.Config{Redis: rdb, Master: known.master, FindEviction: known.findEviction, PubSub: node.SubscriberOf(rdb), Prefix: cfg.prefix, ClusterSlots: clusterSlots(rdb, known.cluster), Sharded: known.cluster != nil, Log: cfg.log, Description: cfg.description, FenceRetention: cfg.fenceRetention, Observers: cfg.observers}
	switch c := rdb.(type) { // another client may send commands elsewhere, or look at each
	case *redis.AutoPipeliner:
		if find(c, reflect.TypeFor[*redis.Client]()).IsValid() { // and not a redis.ClusterClient
			conf.Pipeline = c.Pipeline
		}
	case *redis.ClusterClient:
		conf.ClusterPipeline = c.Pipeline
		// A client that may read from replicas asks Redis about each command, without a deadline.
		opt := c.Options()
		conf.Direct = obeysDeadlines(opt.ContextTimeoutEnabled, opt.ReadTimeout, opt.WriteTimeout) &&
			!opt.ReadOnly && !opt.RouteByLatency && !opt.RouteRandomly
	case *redis.Client:
		conf.Pipeline = c.Pipeline
		conf.Direct = obeysDeadlines(c.Options().ContextTimeoutEnabled, c.Options().ReadTimeout, c.Options().WriteTimeout)
	}
	if known.cluster != nil {
		conf.ReloadTopology = reloadTopology(known.cluster)
	}
	s := session.New(conf)
	if known.cluster != nil {
		s.FoundCluster()
	}
	registry := mutex.NewRegistry(s)
	return &Client{
		session: s, registry: registry, mutexes: construct.Reentrant(registry), fair: construct.Fair(registry), semaphores: construct.Semaphore(s),
		defaults: cfg.lock, completeDefaults: complete, servers: known, prefix: cfg.prefix, closed: make(chan struct{}),
	}, nil
}

// obeysDeadlines reports whether a go-redis client with these options obeys the deadline of a context while it
// reads and writes. With a negative timeout, it sets no deadlines.
func obeysDeadlines(contextTimeoutEnabled bool, read, write time.Duration) bool {
	return contextTimeoutEnabled && read >= 0 && write >= 0
}

// find returns rdb if it has that type, which is a pointer, or else the pointer of that type among the fields of the
// struct rdb, at any depth. The usual way to add tracing is a struct that embeds the client. find looks only into fields
// that are clients themselves. It misses a client that is called in another way, such as through a func;
// session.Session recognises such a cluster otherwise. find returns the zero Value if there is none. find has no
// type parameter, nor uses reflect.TypeFor of a type with the six hundred methods of a client: the compiler would make
// them all for this package too, which took longer than all the rest.
func find(rdb redis.UniversalClient, pointer reflect.Type) reflect.Value {
	client := reflect.TypeOf((*redis.UniversalClient)(nil)).Elem()
	var look func(v reflect.Value, deep int) reflect.Value
	look = func(v reflect.Value, deep int) reflect.Value {
		for (v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer) && !v.IsNil() {
			if v.Type() == pointer {
				return v
			}
			v = v.Elem()
		}
		const deepest = 10 // wrappers that refer to each other have an end
		if v.Kind() != reflect.Struct || deep == deepest || !reflect.PointerTo(v.Type()).Implements(client) {
			return reflect.Value{}
		}
		for i := range v.NumField() {
			if found := look(v.Field(i), deep+1); found.IsValid() {
				return found
			}
		}
		return reflect.Value{}
	}
	return look(reflect.ValueOf(rdb), 0)
}

// reloadTopology returns a func that has go-redis learn the nodes of a cluster anew. go-redis asks any
// node that it knows. If that one has left the cluster, it knows no masters, and another one is asked.
func reloadTopology(cluster *redis.ClusterClient) func(ctx context.Context) {
	const asks = 8
	return func(ctx context.Context) {
		var masters atomic.Bool
		for n := 0; n < asks && !masters.Load() && ctx.Err() == nil; n++ {
			// Unlike ReloadState, this ends with ctx, and another one may run beside one that hangs.
			_ = cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { masters.Store(true); return nil })
		}
	}
}

// clusterSlots returns a func that asks which master serves which slots. If the cluster client has a func of its own
// that says so, that one is asked, and otherwise a node.
func clusterSlots(rdb redis.UniversalClient, cluster *redis.ClusterClient) func(ctx context.Context) ([]session.SlotRange, error) {
	ask := func(ctx context.Context) ([]redis.ClusterSlot, error) {
		cmd := redis.NewClusterSlotsCmd(ctx, "cluster", "slots")
		cmd.SetStepCount(1) // see lua.noRetryCmd
		err := rdb.Process(ctx, cmd)
		return cmd.Val(), err
	}
	if cluster != nil && cluster.Options().ClusterSlots != nil {
		ask = cluster.Options().ClusterSlots
	}
	return func(ctx context.Context) (ranges []session.SlotRange, err error) {
		slots, err := ask(ctx)
		for _, r := range slots {
			if len(r.Nodes) > 0 {
				ranges = append(ranges, session.SlotRange{First: r.Start, Last: r.End, Master: r.Nodes[0].Addr})
			}
		}
		return ranges, err
	}
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

// lockSettings returns the client's settings, overridden by those of one lock. Locks without options of
// their own share the settings.
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
	c.servers.check(&set)
	return &set
}

// Close ends the client. Goroutines that wait for a lock return ErrClosed. Close releases all
// holds, and their contexts end with ErrClosed. It waits for background work.
//
// Close returns when all that is done, or within a moment after ctx ends. If ctx has already ended, the first
// Close still has two seconds, the time of one command. Locks that Close could not release in this time are
// left to their leases, and the error says so. That includes a lock whose Unlock, Release or Do has returned
// before Redis confirmed the release, because the client goes on with that in the background. It does not include
// an UnlockAfter, ReleaseAfter or Export that failed, nor a Lock or Acquire that got no answer.
//
// After Close every method returns ErrClosed. A repeated Close waits for the first one and returns nil, or the
// error of ctx if that ends first.
//
// A wait callback or a log handler may call Close, also with the context of a hold. Close does not
// wait for wait callbacks that are running, and waits only an instant for the log handler. But a
// hook, a dialer or a credentials provider of go-redis must not call Close, because it runs inside a
// command that Close waits for.
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
