package redlatch

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/fair"
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
// concurrently.
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
// The error is a *lockerr.ConfigError that names the value which is not usable.
// A redis.Ring is not: it decides for each key which server is asked, and
// changes its mind when one fails, so two clients can ask different servers.
func New(rdb redis.UniversalClient, options ...Option) (*Client, error) {
	if isNil(rdb) {
		return nil, &lockerr.ConfigError{What: "redis client", Value: rdb, Why: "must not be nil"}
	}
	if _, ring := rdb.(*redis.Ring); ring {
		return nil, &lockerr.ConfigError{What: "redis client", Value: fmt.Sprintf("%T", rdb), Why: "a ring may ask another server for the same lock"}
	}
	cfg := defaultConfig()
	for _, option := range options {
		option.applyClient(&cfg)
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	_, cluster := rdb.(*redis.ClusterClient)
	s := session.New(session.Config{
		Redis: rdb, PubSub: rdb, Log: cfg.log, About: cfg.description, KeepFence: cfg.keepFence, Cluster: cluster,
	})
	book := mutex.NewBook(s)
	return &Client{
		session: s, book: book, mutexes: reentrant.NewFamily(book), fair: fair.NewFamily(book), permits: semaphore.NewFamily(s),
		defaults: cfg.lock, prefix: cfg.prefix, closed: make(chan struct{}),
	}, nil
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
// A name is text without control characters, of at most 512 bytes with the
// client's prefix. Braces must form exactly one non-empty {tag}, as Redis
// Cluster defines them, and a name must not begin with "redisson_lock_token:",
// as the keys of fences do.
func (c *Client) Mutex(name string, options ...LockOption) *reentrant.Mutex {
	return c.mutexes.Mutex(c.prefix+name, c.with(options))
}

// FairMutex returns the mutex of a name that is given in order of arrival, across
// all processes. It guards the same key as Mutex: the two exclude each other, and
// who has one re-enters by the other; but who waits for the plain one has no place
// in the queue. Package fair says when to take which. Names and options are as for
// Mutex.
func (c *Client) FairMutex(name string, options ...LockOption) *fair.Mutex {
	return c.fair.Mutex(c.prefix+name, c.with(options))
}

// Semaphore returns the semaphore of a name, of which at most limit units of permits
// live at once, across all processes. All of them say the same limit, which is kept
// in Redis; see semaphore.Semaphore.Resize for changing it. It has nothing in common
// with a mutex of the same name. Names and options are as for Mutex.
func (c *Client) Semaphore(name string, limit int, options ...LockOption) *semaphore.Semaphore {
	return c.permits.Semaphore(c.prefix+name, limit, c.with(options))
}

// with is the client's settings with those of one lock.
func (c *Client) with(options []LockOption) settings.Lock {
	set := c.defaults
	for _, option := range options {
		option.applyLock(&set)
	}
	return set
}

// Close ends the client: goroutines that wait for a lock return ErrClosed, what
// is held is released and the contexts of those holds end with ErrClosed,
// background work is waited for. Close returns when all that is done or ctx
// ends; what could not be released by then is left to its lease, and the error
// says so. After Close every method returns ErrClosed. Closing again waits for
// the first Close and returns nil.
func (c *Client) Close(ctx context.Context) error {
	if !c.session.BeginClose() {
		select {
		case <-c.closed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer close(c.closed)
	return errors.Join(c.book.Close(ctx), c.permits.Close(ctx), c.session.FinishClose(ctx))
}
