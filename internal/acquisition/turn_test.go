package acquisition

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/watchdog"
)

// Nobody has to wait for a free turn, so it does not matter that the context has ended.
func TestAFreeLocalLockIsTakenThoughTheContextHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a := &Acquisition{}
	for range 100 { // a select between two that are ready draws one
		require.NoError(t, a.lockCommands(ctx))
		a.unlockCommands()
	}
}

// A caller that comes while a command is in flight gets the turn after it, and so do later ones.
func TestOneCommandAtATime(t *testing.T) {
	a := &Acquisition{}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for range 3 { // without, and then with, others that wait
		require.NoError(t, a.lockCommands(context.Background()))
		require.ErrorIs(t, a.lockCommands(ended), lockerr.ErrIndeterminate)
		var inCommand atomic.Int32
		var g sync.WaitGroup
		for range 50 {
			g.Go(func() {
				assert.NoError(t, a.lockCommands(context.Background()))
				assert.EqualValues(t, 1, inCommand.Add(1))
				runtime.Gosched()
				inCommand.Add(-1)
				a.unlockCommands()
			})
		}
		a.unlockCommands()
		g.Wait()
	}
}

// A context knows whose release ended it, also if it was made after the release.
func TestContextsKnowWhoseReleaseEndedThem(t *testing.T) {
	a := &Acquisition{Grant: Grant{ID: "a:1", Owner: owner.New()}}
	h := a.newHold(&CallSite{})
	before := h.Derive(context.Background())
	require.NoError(t, before.Err())
	a.markReleased(h)
	for _, ctx := range []context.Context{before, h.Derive(context.Background())} {
		require.True(t, a.IsOwnEnd(context.Cause(ctx)))
		other := &Acquisition{Grant: Grant{ID: "a:2", Owner: owner.New()}}
		require.False(t, other.IsOwnEnd(context.Cause(ctx)))
	}
}

// The loss may come between the last look at the lock and the command.
func TestTheContextOfACommandAfterTheLossHasEnded(t *testing.T) {
	a := &Acquisition{state: lost, lostErr: &lockerr.LostError{Name: "orders"}}
	ctx, cancel := a.contextUntilLost(context.Background())
	defer cancel()
	require.ErrorIs(t, context.Cause(ctx), lockerr.ErrLost)
}

// The lease may end when its release has begun. The answer to the release then tells what became of
// the lock.
func TestTheEndOfTheLeaseDuringAReleaseIsNoLoss(t *testing.T) {
	for _, s := range []state{releasing, released} {
		a := &Acquisition{state: s, session: new(session.Session)}
		a.OnLost(watchdog.TrustEnded)
		require.False(t, a.IsLive())
		require.Equal(t, s, a.state)
		require.Nil(t, a.lostErr)
	}
}

// The last function of a stack is a call site too.
func TestACallSiteWithoutCallersIsNotUnknown(t *testing.T) {
	var s CallSite
	runtime.Callers(1, s.pcs[:1])
	require.Contains(t, s.String(), "turn_test.go:")
}
