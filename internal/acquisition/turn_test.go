package acquisition

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lockerr"
)

// Nobody has to wait for a free turn, so it does not matter that the context has ended.
func TestAFreeLocalLockIsTakenThoughTheContextHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a := &Acquisition{commandLock: make(chan struct{}, 1)}
	for range 100 { // a select between two that are ready draws one
		require.NoError(t, a.lockCommands(ctx, "unlock"))
		a.unlockCommands()
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
		a := &Acquisition{state: s}
		a.expire("its lease could not be confirmed in time")
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
