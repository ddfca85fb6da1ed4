package redlatchtest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/testhook"
)

// Server is an embedded Redis for one test, and the clients that the program under test uses.
//
// Methods of Server that cannot do their work end the test with t.Fatal. So call them in the
// goroutine of the test, as the package testing demands for t.Fatal. Down, Up, Lose and the release
// of HoldElsewhere may be called in any goroutine, for instance by time.AfterFunc. Names of locks
// are those that the program passes to Client, without the prefix of WithPrefix.
type Server struct {
	// Client is the client for the program under test. It has the options of New, and is closed
	// when the test ends.
	Client *redlatch.Client
	// Redis is the go-redis client of Client. Use it for what the program keeps in Redis beside its
	// locks. Down cuts it off too. A client that redlatch.New makes of it works, but Lose and
	// Advance do not know it, so it finds out at its next renewal. Use NewClient instead.
	Redis *redis.Client

	t        testing.TB
	options  []redlatch.Option
	program  *redistest.Virtual // the link of the program under test, which Down cuts
	injected injectedErrors
	clock    clock
	outages  atomic.Int64 // calls of Down

	elsewhere *redlatch.Client // another process, with a link of its own
	operator  *redlatch.Client // looks at locks and ends them, by the same link; it has no prefix
	direct    *redis.Client    // that link

	losing sync.RWMutex // read-locked by Lose and Advance, because a test may end as soon as its program notices the loss

	mu      sync.Mutex
	clients []*redlatch.Client // all of them
	kept    []any              // holds of elsewhere: a hold that becomes garbage is not renewed
	down    bool
}

// closeTimeout bounds how long the end of a test waits for the clients. They have a server that
// answers, so this is for a program that blocks in a log handler or in a wait callback.
const closeTimeout = 10 * time.Second

// New makes a server for a test, with one client. The options are those of redlatch.New. They also
// hold for NewClient. HoldElsewhere documents which of them its process has: an observer sees what
// the program does. The logs of the clients go to the output of the test, unless WithLogger says
// otherwise.
//
// In a bubble of testing/synctest, call New inside the bubble, with the *testing.T of the bubble.
//
// If the program still has a lock or a permit when the test ends, the test fails: the program
// forgot an Unlock, or one of its goroutines still runs, a second later. To allow that, close the
// client in the test. Then the server answers again if it was down, all clients are closed, and the
// server ends. Goroutines of the program must end by themselves.
func New(t testing.TB, options ...redlatch.Option) *Server {
	t.Helper()
	log := &output{t: t}
	t.Cleanup(log.close) // the last step, because clients write until they are closed
	s := &Server{t: t, program: redistest.Bubble(t)}
	s.clock.server = s.program.Server
	s.options = append([]redlatch.Option{redlatch.WithLogger(slog.New(slog.NewTextHandler(log, nil)))}, options...)
	s.Redis = s.connect(s.program, func(o *redis.Options) {
		o.Dialer, o.CredentialsProviderContext = s.dialer(o.Dialer), s.refuse
	})
	other := s.connect(s.program.Another())
	t.Cleanup(s.close)
	s.Client = s.makeClient(s.Redis, s.options...)
	s.elsewhere = s.makeClient(other, append(slices.Clone(s.options),
		redlatch.WithDescription("another process"), testhook.WithoutObservers.(redlatch.Option),
		redlatch.WithMaxHold(0), redlatch.WithProgressTimeout(0))...) // nobody reports, and the test says when it ends
	s.operator, s.direct = s.makeClient(other), other
	return s
}

// NewClient makes another client of the same server, like the one of another process that runs the
// program. It has the options of New, and these. It is closed when the test ends.
func (s *Server) NewClient(options ...redlatch.Option) *redlatch.Client {
	s.t.Helper()
	return s.makeClient(s.Redis, append(slices.Clone(s.options), options...)...)
}

func (s *Server) makeClient(rdb *redis.Client, options ...redlatch.Option) *redlatch.Client {
	s.t.Helper()
	c, err := redlatch.New(rdb, options...)
	if err != nil {
		s.t.Fatalf("redlatchtest: %v", err)
	}
	testhook.Of(c).Session.ObserveAtOnce() // so that tests in a bubble need not sleep before they look
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	return c
}

func (s *Server) connect(link *redistest.Virtual, mods ...func(*redis.Options)) *redis.Client {
	mods = append(mods, func(o *redis.Options) {
		// Without ContextTimeoutEnabled, the client waits for an answer for up to two seconds, and
		// not for 20 ms. On a busy machine it would otherwise miss the error of FailNext, and try
		// again.
		o.DialerRetries = 1 // the next would be refused too, 100 ms later
	})
	rdb := link.Client(mods...)
	rdb.AddHook(hook{s})
	return rdb
}

// Down makes the server unreachable for the program under test until Up. Connections end, and new
// ones are refused. Client, the clients of NewClient, and Redis are affected. The server itself
// goes on: leases end, and the holder of HoldElsewhere renews its lease.
//
// A call of the program then behaves as documented: Lock waits until its context ends, and TryLock
// gives up after five seconds. A holder is notified of the loss before its lease ends.
func (s *Server) Down() {
	s.setDown(true)
	s.program.Down()
	s.outages.Add(1)
}

// Up ends Down. Clients connect again by themselves, within a second.
func (s *Server) Up() {
	s.t.Helper()
	s.setDown(false)
	s.program.Up()
}

// awaitLosing returns when no Lose and no Advance is running.
func (s *Server) awaitLosing() {
	s.losing.Lock()
	defer s.losing.Unlock()
}

func (s *Server) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *Server) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *Server) allClients() []*redlatch.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.clients)
}

// requireReleased fails the test for each lock and permit that the program still has. Goroutines
// that end with the context of the test need a moment.
func (s *Server) requireReleased() {
	s.t.Helper()
	const step, most = 10 * time.Millisecond, time.Second
	held := s.held()
	for end := time.Now().Add(most); len(held) > 0 && time.Now().Before(end); held = s.held() {
		time.Sleep(step)
	}
	for _, a := range held {
		if site := a.OldestCallSite(); site.IsKnown() {
			s.t.Errorf("redlatchtest: the program still has %q, acquired at %s, when the test ends", a.Name, site)
		} else { // a garbage hold is in the log, with its line
			s.t.Errorf("redlatchtest: the program still has %q when the test ends", a.Name)
		}
	}
}

// held returns the locks and permits that the program has.
func (s *Server) held() (all []*acquisition.Acquisition) {
	for _, c := range s.allClients() {
		if c == s.elsewhere {
			continue
		}
		for _, a := range testhook.Of(c).Held() {
			if a.NeedsUnlock() {
				all = append(all, a)
			}
		}
	}
	return all
}

// close is the end of the test.
func (s *Server) close() {
	s.t.Helper()
	s.awaitLosing()
	if !s.t.Failed() && !s.t.Skipped() {
		s.requireInjected()
		s.requireReleased()
	}
	s.injected.end()
	s.Up()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, c := range s.allClients() {
		if err := c.Close(ctx); err != nil && !errors.Is(err, redis.ErrClosed) { // unless the program closed Redis
			s.t.Errorf("redlatchtest: close: %v", err)
		}
	}
}
