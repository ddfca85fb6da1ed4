package redlatchui

import (
	"log/slog"
	"net/http"
	"path"
	"strings"

	"github.com/redlatch/redlatch/lockerr"
)

// Option is an option of New.
type Option interface{ apply(*config) error }

type option func(*config) error

func (o option) apply(c *config) error { return o(c) }

type config struct {
	prefix   string
	logger   *slog.Logger
	actions  func(*http.Request) (who string, allowed bool)
	losses   *Losses
	viewers  int
	hashes   bool
	loopback bool
}

const defaultViewers = 100

// WithPrefix sets the path below which the handler is mounted, such as "/locks". The handler gets
// requests with this prefix in their path. Defaults to none.
func WithPrefix(prefix string) Option {
	return option(func(c *config) error {
		plain := !strings.ContainsFunc(prefix, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/-_.~", r)
		})
		if prefix != "" && (!plain || prefix == "/" || prefix[0] != '/' || path.Clean(prefix) != prefix) {
			return &lockerr.ConfigError{Setting: "prefix", Option: "WithPrefix", Value: prefix, Reason: `must be a path such as "/locks": it begins with a slash, does not end with one, and has no special characters`}
		}
		c.prefix = prefix
		return nil
	})
}

// WithLogger sets the logger for actions, and for requests that were refused. Defaults to
// slog.Default().
func WithLogger(logger *slog.Logger) Option {
	return option(func(c *config) error {
		if logger == nil {
			return &lockerr.ConfigError{Setting: "logger", Option: "WithLogger", Reason: "must not be nil"}
		}
		c.logger = logger
		return nil
	})
}

// WithActions lets people change something: release a lock or a permit, remove a waiter, resize a
// semaphore. allow says who sends a request, for the log, and whether they may do so. The handler
// calls it for each page, and again for each action, concurrently. Without this option, the page is
// read-only.
func WithActions(allow func(r *http.Request) (who string, allowed bool)) Option {
	return option(func(c *config) error {
		if allow == nil {
			return &lockerr.ConfigError{Setting: "function that allows actions", Option: "WithActions", Reason: "must not be nil"}
		}
		c.actions = allow
		return nil
	})
}

// WithLosses shows how many locks and permits were lost in the last hour. losses must be an
// observer of the clients that count, see NewLosses.
func WithLosses(losses *Losses) Option {
	return option(func(c *config) error {
		if losses == nil {
			return &lockerr.ConfigError{Setting: "losses", Option: "WithLosses", Reason: "must not be nil; NewLosses makes them"}
		}
		c.losses = losses
		return nil
	})
}

// WithMaxViewers limits how many live pages are open at the same time. A further page loads, and
// does not update itself. At least 1. Defaults to 100.
func WithMaxViewers(n int) Option {
	return option(func(c *config) error {
		if n < 1 {
			return &lockerr.ConfigError{Setting: "number of viewers", Option: "WithMaxViewers", Value: n, Reason: "must be at least 1"}
		}
		c.viewers = n
		return nil
	})
}

// WithHashes also looks at all hashes of the database. That finds locks of Redisson's RLock, which
// have no fence. It costs Redis more if there are many keys that are no locks.
func WithHashes() Option {
	return option(func(c *config) error { c.hashes = true; return nil })
}

// WithLoopbackOnly refuses requests whose Host header is not a loopback address or "localhost". Use
// it if the server listens on a loopback address and has no login. Otherwise a foreign page in the
// browser of an operator could reach the handler under a name that resolves to 127.0.0.1.
func WithLoopbackOnly() Option {
	return option(func(c *config) error { c.loopback = true; return nil })
}
