package acquisition_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// Of a lease of three seconds, trust ends 300 ms before its end. One attempt gets a second, and the
// watchdog asks every second.
const (
	lease   = 3 * time.Second
	trusted = lease - 300*time.Millisecond
	attempt = time.Second
)

var errAnswer = errors.New("the backend failed")

// scene is one client in a bubble, with backends in place of Redis.
type scene struct {
	t        *testing.T
	session  *session.Session
	settings settings.Lock
	renewal  func(ctx context.Context) (watchdog.Result, error) // nil: renewed
	log      lines
}

func inBubble(t *testing.T, play func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t, settings: settings.Default}
		s.session = session.New(session.Config{Log: slog.New(&s.log)})
		s.settings.Lease = lease
		require.NoError(t, s.settings.Complete())
		s.session.SetRenewer(session.Holds, s.renew)
		defer s.close()
		play(s)
	})
}

func (s *scene) close() {
	s.session.BeginClose()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(s.t, s.session.FinishClose(ctx))
}

func (s *scene) renew(ctx context.Context, _ lua.Redis, batch []watchdog.Renewal) ([]watchdog.Result, error) {
	answers := make([]watchdog.Result, len(batch))
	for i := range batch {
		answers[i] = watchdog.Renewed
		if s.renewal != nil {
			var err error
			if answers[i], err = s.renewal(ctx); err != nil {
				return nil, err
			}
		}
	}
	return answers, nil
}

// gone answers renewals for a lock that Redis has no more.
func gone(context.Context) (watchdog.Result, error) { return watchdog.Gone, nil }

// start begins an acquisition with its first hold.
func (s *scene) start() (*acquisition.Hold, *backend) {
	b, site := &backend{scene: s}, acquisition.CallerSite()
	return acquisition.Start(s.session, b, acquisition.Grant{
		Name: "orders", ID: s.session.NewAcquisitionID(), Sent: time.Now(),
		Owner: owner.ForAcquire(context.Background()), Settings: &s.settings,
	}, &site), b
}

func (s *scene) reenter(a *acquisition.Acquisition) *acquisition.Hold {
	s.t.Helper()
	h, err := a.Reenter(context.Background(), acquisition.CallerSite())
	require.NoError(s.t, err)
	return h
}

func (s *scene) unlock(h *acquisition.Hold) {
	s.t.Helper()
	require.NoError(s.t, h.Unlock(context.Background()))
}

// backend is the acquisition.MutexBackend of one acquisition. It notes the commands.
type backend struct {
	*scene
	answer func(ctx context.Context, n int) error // to the command with that number; nil: done

	mu          sync.Mutex
	running     bool
	retries     bool // the background may release at the same time
	commands    []string
	contexts    []context.Context
	lost, ended int
	inFlight    session.InFlight // of the next command
}

func (b *backend) send(ctx context.Context, command string) (session.InFlight, error) {
	b.mu.Lock()
	assert.False(b.t, b.running && !b.retries, "two commands at a time")
	b.running = true
	b.commands, b.contexts = append(b.commands, command), append(b.contexts, ctx)
	n, inFlight := len(b.commands), b.inFlight
	b.inFlight = session.InFlight{}
	b.mu.Unlock()
	var err error
	if b.answer != nil {
		err = b.answer(ctx, n)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = false
	return inFlight, err
}

func (b *backend) Reenter(ctx context.Context, _ *acquisition.Acquisition, holds int, lease func() time.Duration) (acquisition.HoldsUpdate, error) {
	sent := time.Now()
	inFlight, err := b.send(ctx, fmt.Sprint("reenter ", holds, " ", lease()))
	return acquisition.HoldsUpdate{Sent: sent, InFlight: inFlight}, err
}

func (b *backend) SetHolds(ctx context.Context, _ *acquisition.Acquisition, holds int) (acquisition.HoldsUpdate, error) {
	sent := time.Now()
	inFlight, err := b.send(ctx, fmt.Sprint("holds ", holds))
	return acquisition.HoldsUpdate{Sent: sent, InFlight: inFlight}, err
}

func (b *backend) Release(ctx context.Context, _ *acquisition.Acquisition) error {
	_, err := b.send(ctx, "release")
	return err
}

func (b *backend) Keep(ctx context.Context, _ *acquisition.Acquisition, k acquisition.Keep) (time.Time, session.InFlight, error) {
	sent := time.Now()
	_, err := b.send(ctx, fmt.Sprint("keep ", k.For))
	return sent, session.InFlight{}, err
}

func (b *backend) OnLost(*acquisition.Acquisition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost++
}

func (b *backend) OnEnded(*acquisition.Acquisition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended++
}

func (b *backend) CleanUp(string, session.InFlight) { b.t.Error("nothing is in flight") }

// sent asserts which commands were sent.
func (b *backend) sent(commands ...string) {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Equal(b.t, commands, b.commands)
}

// notified asserts how often the backend was notified of the loss and of the end.
func (b *backend) notified(lost, ended int) {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Equal(b.t, [2]int{lost, ended}, [2]int{b.lost, b.ended}, "notifications of the loss and of the end")
}

// hang answers no command until its context ends.
func hang(ctx context.Context, _ int) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// after answers each command after that time.
func after(d time.Duration, err error) func(context.Context, int) error {
	return func(context.Context, int) error {
		time.Sleep(d)
		return err
	}
}

// begin calls f in a goroutine of its own, and returns when f waits for something.
func begin[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	synctest.Wait()
	return c
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// lines keeps what was logged.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, r.Message)
	return nil
}

// are asserts what the lines end with.
func (l *lines) are(t *testing.T, ends ...string) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Len(t, l.text, len(ends), l.text)
	for i, end := range ends {
		require.True(t, strings.HasSuffix(l.text[i], end), l.text[i])
	}
}

// collect is what the runtime does when the handle of the hold has become garbage. It returns when
// the client has handled that.
func collect(h *acquisition.Hold) {
	h.HandleCollected()
	time.Sleep(time.Second)
}
