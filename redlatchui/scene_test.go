package redlatchui_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/redlatchui"
)

// scene is an embedded server with the page of it, and another process that holds locks. It works
// in a bubble of testing/synctest, and outside of one.
type scene struct {
	t      *testing.T
	page   *redlatchui.Handler
	link   *redistest.Virtual // that of the page
	rdb    *redis.Client      // that of the page
	counts *commandCounts     // of the page
	locks  *redlatch.Client   // of the other process
	log    *logBuffer
	mine   *redlatch.Client // of the page
	server *redistest.Virtual
}

func newScene(t *testing.T, options ...redlatchui.Option) *scene {
	t.Helper()
	server := redistest.Bubble(t)
	s := &scene{t: t, server: server, link: server.Another(), counts: &commandCounts{byName: map[string]int{}}, log: &logBuffer{}}
	// Without ContextTimeoutEnabled, an answer that takes 20 ms does not count as lost.
	s.rdb = s.link.Client(func(o *redis.Options) { o.DialerRetries = 1 })
	s.rdb.AddHook(s.counts)
	s.mine = newLocks(t, s.rdb)
	s.locks = newLocks(t, server.Client())
	s.page = s.newPage(options...)
	return s
}

func (s *scene) newPage(options ...redlatchui.Option) *redlatchui.Handler {
	s.t.Helper()
	page, err := redlatchui.New(s.rdb, s.mine, append([]redlatchui.Option{redlatchui.WithLogger(slog.New(slog.NewTextHandler(s.log, nil)))}, options...)...)
	require.NoError(s.t, err)
	return page
}

func newLocks(t *testing.T, rdb redis.UniversalClient, options ...redlatch.Option) *redlatch.Client {
	t.Helper()
	locks, err := redlatch.New(rdb, append([]redlatch.Option{redlatch.WithDescription("worker-1"), redlatch.WithLogger(slog.New(slog.DiscardHandler))}, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

// hold locks a mutex until the test ends.
func (s *scene) hold(name string) *redlatch.Hold {
	s.t.Helper()
	hold, err := s.locks.Mutex(name).Lock(s.t.Context())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = hold.Unlock(context.Background()) })
	return hold
}

// worker makes the client of another process.
func (s *scene) worker(n int) *redlatch.Client {
	s.t.Helper()
	return newLocks(s.t, s.server.Client(), redlatch.WithDescription(fmt.Sprint("worker-", n)))
}

// wait waits in the queue of a fair mutex until the test ends, and returns when it has its place.
func (s *scene) wait(name string) {
	s.t.Helper()
	placed := make(chan struct{}, 10)
	s.inBackground(placed, func(ctx context.Context, option redlatch.LockOption) {
		_, _ = s.locks.FairMutex(name, option).Lock(ctx)
	})
}

func (s *scene) inBackground(placed chan struct{}, call func(context.Context, redlatch.LockOption)) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		call(ctx, redlatch.WithWaitCallback(func(redlatch.Waiting) {
			select {
			case placed <- struct{}{}:
			default:
			}
		}))
	}()
	s.t.Cleanup(func() { cancel(); <-done })
	select {
	case <-placed:
	case <-time.After(time.Minute):
		s.t.Fatal("no place in the queue")
	}
}

// get requests a page as a browser does.
func (s *scene) get(link string) *httptest.ResponseRecorder { return ask(s.page, link) }

func ask(page http.Handler, link string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, link, nil))
	return w
}

func lockLink(name string) string { return "/lock?" + url.Values{"name": {name}}.Encode() }

// viewer is an open live page.
type viewer struct {
	*writer
	leave func() // returns when the handler has
	done  chan struct{}
}

func watch(t *testing.T, page http.Handler, link string) *viewer {
	ctx, cancel := context.WithCancel(context.Background())
	v := &viewer{writer: &writer{header: http.Header{}, status: http.StatusOK}, done: make(chan struct{})}
	v.leave = func() { cancel(); <-v.done }
	t.Cleanup(v.leave)
	go func() {
		defer close(v.done)
		page.ServeHTTP(v.writer, httptest.NewRequest(http.MethodGet, link, nil).WithContext(ctx))
	}()
	return v
}

// writer is a connection to a viewer.
type writer struct {
	header http.Header
	stuck  chan struct{} // if set, the viewer reads nothing until it is closed

	writing atomic.Bool

	mu       sync.Mutex
	status   int
	buf      bytes.Buffer
	deadline time.Time
}

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = status
}

func (w *writer) Write(p []byte) (int, error) {
	w.writing.Store(true)
	defer w.writing.Store(false)
	for w.stuck != nil {
		w.mu.Lock()
		left := time.Until(w.deadline)
		w.mu.Unlock()
		if left <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		select {
		case <-w.stuck:
			return 0, net.ErrClosed
		case <-time.After(min(left, 10*time.Millisecond)): // the deadline may change
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

func (w *writer) Flush() {}

func (w *writer) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = t
	return nil
}

func (w *writer) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

func (w *writer) pages() int { return strings.Count(w.text(), "event: page\n") }

// lastPage returns the newest reading that the viewer got.
func (w *writer) lastPage() string {
	all := strings.Split(w.text(), "event: page\n")
	if len(all) == 1 {
		return ""
	}
	return all[len(all)-1]
}

// commandCounts counts the commands of a client.
type commandCounts struct {
	mu     sync.Mutex
	byName map[string]int
}

func (c *commandCounts) count(cmds ...redis.Cmder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range cmds {
		c.byName[cmd.Name()]++
		c.byName["all"]++
	}
}

func (c *commandCounts) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byName[name]
}

func (c *commandCounts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *commandCounts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.count(cmd); return next(ctx, cmd) }
}

func (c *commandCounts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.count(cmds...); return next(ctx, cmds) }
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

var _ io.Writer = (*logBuffer)(nil)
