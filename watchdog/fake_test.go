package watchdog

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	errDown = errors.New("server down")
	bg      = context.Background()
)

// asking is one call of Renew as the server saw it.
type asking struct {
	at    time.Time
	group Group
	batch []Renewal
}

// fake is a Renew that remembers what it was asked. It answers Renewed to
// renewals and Held to looks, unless reply says otherwise.
type fake struct {
	mu    sync.Mutex
	asked []asking
	reply func(ctx context.Context, group Group, batch []Renewal) ([]Result, error)
}

func (f *fake) renew(ctx context.Context, group Group, batch []Renewal) ([]Result, error) {
	f.mu.Lock()
	f.asked = append(f.asked, asking{time.Now(), group, batch})
	reply := f.reply
	f.mu.Unlock()
	if reply != nil {
		return reply(ctx, group, batch)
	}
	return yes(batch), nil
}

func (f *fake) set(reply func(context.Context, Group, []Renewal) ([]Result, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reply = reply
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

func (f *fake) last() asking {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[len(f.asked)-1]
}

// since returns what was asked from the n-th call on.
func (f *fake) since(n int) []asking {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]asking(nil), f.asked[n:]...)
}

// yes is the healthy server's answer.
func yes(batch []Renewal) []Result {
	answers := make([]Result, len(batch))
	for i, r := range batch {
		answers[i] = Renewed
		if r.Lease == 0 {
			answers[i] = Held
		}
	}
	return answers
}

func all(a Result, batch []Renewal) []Result {
	answers := make([]Result, len(batch))
	for i := range answers {
		answers[i] = a
	}
	return answers
}

func down(context.Context, Group, []Renewal) ([]Result, error) { return nil, errDown }

// hang waits for its context, as a good Renew does.
func hang(ctx context.Context, _ Group, _ []Renewal) ([]Result, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// news is what the owner of a lease was notified of.
type news struct {
	mu      sync.Mutex
	reasons []Reason
	at      time.Time
}

func (n *news) ended(r Reason) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reasons, n.at = append(n.reasons, r), time.Now()
}

func (n *news) received() []Reason {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reasons
}

const (
	lease  = 30 * time.Second
	margin = time.Second
	every  = 10 * time.Second
	trust  = lease - margin
)

// spec is an ordinary lease granted now, whose end notifies n.
func spec(key string, n *news) Spec {
	s := Spec{Key: key, ID: "me", Lease: lease, Margin: margin, Interval: every, Renew: true, Sent: time.Now()}
	if n != nil {
		s.OnLost = LossFunc(n.ended)
	}
	return s
}

// bubble runs f in fake time with a watchdog that is closed at the end.
func bubble(t *testing.T, f func(t *testing.T, w *Watchdog, srv *fake)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := &fake{}
		w := New(Config{Renew: srv.renew})
		defer closed(w)
		f(t, w, srv)
	})
}

// closed closes w, and waits also for the calls that ignored it.
func closed(w *Watchdog) {
	w.Close()
	w.work.Wait()
}

// sleep lets time pass and everything at its end settle.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
