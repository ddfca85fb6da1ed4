package redlatch

import (
	"context"
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/fair"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/joined"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/reentrant"
	"github.com/redlatch/redlatch/semaphore"
)

// Client makes locks on one Redis. A program needs one Client for each Redis
// it locks on, for as long as it runs: it has an id, one connection to hear of
// releases, and one watchdog for all its locks. Methods may be called
// concurrently. A Client that New did not make, nil for instance, makes locks whose every
// use returns a *lockerr.ConfigError.
type Client struct {
	session  *session.Session
	book     *mutex.Book
	mutexes  *reentrant.Family
	fair     *fair.Family
	permits  *semaphore.Family
	defaults settings.Lock
	prefix   string
	closed   chan struct{}
}

// New makes a client on a go-redis client, with its settings for addresses,
// credentials, TLS and pools. The go-redis client stays the caller's, to be
// closed after this one. New does no I/O and starts no goroutine.
//
// Commands of this client share the pool of rdb with those of the program. A blocking
// command (BLPOP, XREAD with BLOCK) occupies a connection for as long as it waits, and
// renewals wait behind it where the pool has no other: give blocking commands a go-redis
// client of their own, or PoolSize one connection more for each of them. The default of
// ten for each processor is ample for locks. PoolTimeout should be well below the lease.
//
// The error is a *lockerr.ConfigError that names the value which is not usable.
// A redis.Ring is not: it decides for each key which server is asked, and
// changes its mind when one fails, so two clients can ask different servers.
//
// New looks for a redis.ClusterClient and a redis.Ring inside of structs that wrap one. A
// wrapper that hides its client altogether works too: the first renewal that the
// cluster refuses with CROSSSLOT shows that it is one, and no lock is lost by that. A
// Ring that is hidden so is not refused.
func New(rdb redis.UniversalClient, options ...Option) (*Client, error) {
	if isNil(rdb) {
		return nil, &lockerr.ConfigError{What: "redis client", Value: rdb, Why: "must not be nil"}
	}
	if wraps[*redis.Ring](rdb) {
		return nil, &lockerr.ConfigError{What: "redis client", Value: fmt.Sprintf("%T", rdb), Why: "a ring may ask another server for the same lock"}
	}
	cfg := defaultConfig()
	for _, option := range options {
		if option == nil {
			return nil, settings.ErrNilOption
		}
		option.applyClient(&cfg)
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	conf := session.Config{Redis: rdb, PubSub: rdb, Log: cfg.log, About: cfg.description, KeepFence: cfg.keepFence}
	if one, ok := rdb.(*redis.Client); ok { // a wrapper may send commands elsewhere, or look at each
		conf.Pipeline = one.Pipeline
	}
	s := session.New(conf)
	if wraps[*redis.ClusterClient](rdb) {
		s.FoundCluster()
	}
	book := mutex.NewBook(s)
	return &Client{
		session: s, book: book, mutexes: reentrant.NewFamily(book), fair: fair.NewFamily(book), permits: semaphore.NewFamily(s),
		defaults: cfg.lock, prefix: cfg.prefix, closed: make(chan struct{}),
	}, nil
}

// wraps reports whether rdb is a T, or a struct that has one among its fields, at any
// depth: the usual way to add tracing is a struct that embeds the client. Only fields
// that are clients themselves are looked into. What calls a client in another way, such
// as through a func, goes unseen; session.Session learns of a cluster otherwise.
func wraps[T redis.UniversalClient](rdb redis.UniversalClient) bool {
	client := reflect.TypeFor[redis.UniversalClient]()
	var look func(v reflect.Value, deep int) bool
	look = func(v reflect.Value, deep int) bool {
		for (v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer) && !v.IsNil() {
			if v.Type() == reflect.TypeFor[T]() {
				return true
			}
			v = v.Elem()
		}
		const deepest = 10 // wrappers that refer to each other have an end
		if v.Kind() != reflect.Struct || deep == deepest || !reflect.PointerTo(v.Type()).Implements(client) {
			return false
		}
		for i := range v.NumField() {
			if look(v.Field(i), deep+1) {
				return true
			}
		}
		return false
	}
	return look(reflect.ValueOf(rdb), 0)
}

// isNil also sees a nil pointer in the interface, the usual result of an
// ignored error.
func isNil(rdb redis.UniversalClient) bool {
	v := reflect.ValueOf(rdb)
	return rdb == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// Mutex returns the reentrant mutex of a name. It is cheap and does no I/O: make
// it where it is needed. Options given here override those of the client. A
// name or an option that is not usable is told by every use of the mutex, as a
// *lockerr.ConfigError.
//
// A name is text without control characters and without characters that cannot be
// seen (joiners, marks of direction), of at most 512 bytes with the client's prefix.
// Braces must form exactly one non-empty {tag}, as Redis Cluster defines them, and a
// name must not begin with "redisson_lock_token:", as the keys of fences do, nor like the
// keys of queues and semaphores, "redlatch:queue:" for instance.
func (c *Client) Mutex(name string, options ...LockOption) *reentrant.Mutex {
	if !c.isMade() {
		return new(reentrant.Mutex)
	}
	return c.mutexes.Mutex(c.prefix+name, c.with(options))
}

// FairMutex returns the mutex of a name that is given in order of arrival, across
// all processes. It guards the same key as Mutex: the two exclude each other, and
// who has one re-enters by the other. Waiters of the plain one have no place in the
// queue, and come after everybody in it. Package fair says when to take which. Names and options are as for
// Mutex.
func (c *Client) FairMutex(name string, options ...LockOption) *fair.Mutex {
	if !c.isMade() {
		return new(fair.Mutex)
	}
	return c.fair.Mutex(c.prefix+name, c.with(options))
}

// Semaphore returns the semaphore of a name, of which at most limit units of permits
// live at once, across all processes. All of them say the same limit, which is kept
// in Redis; see semaphore.Semaphore.Resize for changing it. It has nothing in common
// with a mutex of the same name. Names and options are as for Mutex.
func (c *Client) Semaphore(name string, limit int, options ...LockOption) *semaphore.Semaphore {
	if !c.isMade() {
		return new(semaphore.Semaphore)
	}
	return c.permits.Semaphore(c.prefix+name, limit, c.with(options))
}

// isMade reports whether New made the client. Locks of any other client tell it by
// every use, as they tell what is wrong with a name.
func (c *Client) isMade() bool { return c != nil && c.session != nil }

// with is the client's settings with those of one lock.
func (c *Client) with(options []LockOption) settings.Lock {
	set := c.defaults
	for _, option := range options {
		if option == nil {
			set.Err = settings.ErrNilOption
			break
		}
		option.applyLock(&set)
	}
	return set
}

// Close ends the client: goroutines that wait for a lock return ErrClosed, what
// is held is released and the contexts of those holds end with ErrClosed,
// background work is waited for. Close returns when all that is done or, within a
// moment, when ctx ends; what could not be released by then is left to its lease, and
// the error says so. After Close every method returns ErrClosed. Closing again waits
// for the first Close and returns nil.
//
// Close may be called from anywhere, also from a wait notice or a log handler, and with the context of
// a hold. It does not wait for notices that are under way, and only an instant for the log handler.
func (c *Client) Close(ctx context.Context) error {
	if !c.isMade() {
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
	ctx, cancel := session.Outlasting(ctx, c.session.IsOwnClose) // it may be that of a hold, which Close ends
	defer cancel()
	held := append(c.book.Held(), c.permits.Held()...) // the session closes: nothing new comes
	return joined.Errors(acquisition.CloseAll(ctx, held), c.session.FinishClose(ctx))
}

// awaitClosed waits for the first Close. When that has ended already, a context that is
// over changes nothing.
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
