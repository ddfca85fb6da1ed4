package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lua"
)

// topology follows which node of a cluster has which slots: for the watchdog, and for go-redis.
//
// go-redis learns it anew by itself when a node answers that a slot has moved, and once a minute. A
// node that is dead does not answer. Without this, its locks could not be served for up to a minute
// after another node has taken its slots.
type topology struct {
	reload func(ctx context.Context) // makes go-redis learn the nodes anew; nil if New found no cluster client
	within context.Context           // the parent of each reload's context; ends when the client closes
	tasks  tasks                     // the reloads

	cluster atomic.Bool // the server is a cluster
	nodes   nodes

	fruitless atomic.Int32 // reloads after which the masters were not known yet

	mu      sync.Mutex
	last    time.Time     // when the last reload began
	ended   chan struct{} // closed when it has ended
	running int
}

const (
	// reloadInterval is how old the topology is when the next command has it learned anew.
	reloadInterval = time.Minute
	// reloadPause is the time between two reloads after failures, so that many clients of a cluster
	// in trouble do not keep its other nodes busy. A reload may come before a replica has taken
	// over, so failures go on to cause reloads.
	reloadPause = 500 * time.Millisecond
	// reloadTimeout is how long one reload may take. It may ask the dead node first.
	reloadTimeout = time.Second
	// reloadsAtOnce bounds the reloads that hang although their time is over.
	reloadsAtOnce = 4
)

// onFailure is called when a command failed. ctx is the context of the caller. It does not block.
func (t *topology) onFailure(ctx context.Context, err error) {
	if t.cluster.Load() && saysNodeFailed(ctx, err) {
		t.reloadAfter(reloadPause)
	}
}

// keepFresh is called before commands and renewals are sent. It does not block.
func (t *topology) keepFresh() {
	switch {
	case !t.cluster.Load():
	case t.nodes.areKnown():
		t.reloadAfter(reloadInterval)
	default: // soon at first; a user may never be allowed to ask
		t.reloadAfter(min(reloadPause<<min(t.fruitless.Load(), 10), reloadInterval))
	}
}

// reloadAfter starts a reload, unless the last one began less than pause ago.
func (t *topology) reloadAfter(pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.last) >= pause && t.running < reloadsAtOnce {
		t.last = time.Now()
		t.running++
		t.tasks.add()
		t.ended = make(chan struct{})
		go t.reloadOnce(t.ended)
	}
}

// refresh has the topology learned anew, and blocks until that has happened, ctx ends, or
// reloadTimeout is over. A reload that has just begun counts.
func (t *topology) refresh(ctx context.Context) {
	if !t.cluster.Load() {
		return
	}
	t.reloadAfter(reloadPause)
	t.mu.Lock()
	ended := t.ended
	t.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	select {
	case <-ended:
	case <-bounded.Done():
	}
}

func (t *topology) reloadOnce(ended chan<- struct{}) {
	defer t.tasks.done()
	defer close(ended)
	defer func() {
		_ = recover() // of a hook of go-redis, which the next command meets too
		t.mu.Lock()
		defer t.mu.Unlock()
		t.running--
	}()
	if t.reload != nil {
		t.bounded(t.reload)
	}
	t.bounded(t.nodes.learn)
	if !t.nodes.areKnown() {
		t.fruitless.Add(1)
	}
}

func (t *topology) bounded(ask func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(t.within, reloadTimeout)
	defer cancel()
	ask(ctx)
}

// saysNodeFailed reports whether an error says that a node may have failed. A caller that has
// cancelled its context says nothing about the node, but one whose deadline passed does. An answer
// of a healthy node says that it is healthy.
func saysNodeFailed(ctx context.Context, err error) bool {
	switch {
	case err == nil, errors.Is(err, errVoid), errors.Is(err, errRenewalRefused), errors.Is(err, sender.ErrGoexit):
		return false
	case errors.Is(ctx.Err(), context.Canceled) && !endedByDeadline(ctx):
		return false
	}
	class, code := lua.Classify(err)
	healthy := slices.Contains([]string{"BUSY", "NOSCRIPT", "NOREPLICAS", "TRYAGAIN", "MAXCLIENTS"}, code)
	return (class == lua.Unanswered || class == lua.NotRun) && !healthy
}

// endedByDeadline reports whether a deadline ended ctx. Contexts that redlatch bounds are cancelled
// when their deadline passes.
func endedByDeadline(ctx context.Context) bool {
	_, own := causeOf(ctx).(ownDeadline) //nolint:errorlint // one inside of a cause is of another call
	return own || errors.Is(Cause(ctx), context.DeadlineExceeded)
}
