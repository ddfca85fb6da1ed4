package session

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// The window of another call was over, and that ended the context of this call. If a request took
// this for the end of its own window, it would be sent again for ever.
func TestTheWindowOfAnotherCallIsNotOver(t *testing.T) {
	s := New(Config{})
	call := Operation{Op: "lock", Name: "x", AttemptTimeout: time.Second, MaybeApplied: true}
	other := &lockerr.OpError{Kind: lockerr.ErrIndeterminate, Op: "lock", Name: "y", Err: ErrWindowExpired}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("a part of the job failed: %w", other))
	_, err := Do(ctx, s, call, func(ctx context.Context, _ lua.Redis, _ lua.Time) (int, error) { return 0, ctx.Err() })
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrWindowExpired)
}
