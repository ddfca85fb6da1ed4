package redlatch

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/reentrant"
)

// Client makes locks on one Redis. A program needs one Client for each Redis
// it locks on, for as long as it runs: it has an id, one connection to hear of
// releases, and one watchdog for all its locks. Methods may be called
// concurrently.
type Client struct {
	session  *session.Session
	mutexes  *reentrant.Family
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
	return &Client{
		session: s, mutexes: reentrant.NewFamily(s),
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
// Cluster defines them.
func (c *Client) Mutex(name string, options ...LockOption) *reentrant.Mutex {
	set := c.defaults
	for _, option := range options {
		option.applyLock(&set)
	}
	return c.mutexes.Mutex(c.prefix+name, set)
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
	return errors.Join(c.mutexes.Close(ctx), c.session.FinishClose(ctx))
}
