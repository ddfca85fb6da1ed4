package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/lua"
)

// topology makes go-redis learn anew which node of a cluster has which slots, after a node failed.
//
// go-redis does that by itself when a node answers that a slot has moved, and once a minute. A node that
// is dead does not answer. Without this, its locks could not be served for up to a minute after another
// node has taken its slots.
type topology struct {
	reload func() // nil if there is no cluster; does not block

	mu   sync.Mutex
	last time.Time // the last reload
}

// reloadPause is the time between two reloads, so that many clients of a cluster in trouble do not keep
// its other nodes busy. A reload may come before a replica has taken over, so failures go on to cause
// reloads.
const reloadPause = 500 * time.Millisecond

// onFailure is called when a command failed. ctx is the context of the caller: if the caller has
// cancelled it, that says nothing about the node.
func (t *topology) onFailure(ctx context.Context, err error) {
	if t.reload == nil || err == nil || errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	class, code := lua.Classify(err)
	fromHealthyNode := slices.Contains([]string{"BUSY", "NOSCRIPT", "NOREPLICAS"}, code)
	if class != lua.Unanswered && class != lua.NotRun || fromHealthyNode {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.last) >= reloadPause {
		t.last = time.Now()
		t.reload()
	}
}
