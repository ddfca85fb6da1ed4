package lua

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// noRetryCmd is a command that go-redis does not send again by itself after a lost
// reply. The scripts could bear it; but whoever sends again here has to count
// trust from the new sending, and go-redis does not tell.
//
// go-redis may spend all of a caller's time on dialling and on waiting for a connection,
// and write the command after the caller has left. A command that was left before it was
// written is not written any more, so that "nothing was sent" is a fact and no guess.
type noRetryCmd struct {
	redis.Cmd
	ctx   context.Context //nolint:containedctx // for hooks
	state atomic.Int32
	args  [12]any // the memory of the arguments, unless there are more
}

const (
	stateUnsent int32 = iota // for a connection
	stateWritten
	stateAbandoned
)

func newNoRetryCmd(ctx context.Context, verb, script any, keys, args []any) *noRetryCmd {
	c := &noRetryCmd{ctx: ctx}
	all := append(c.args[:0], verb, script, len(keys))
	all = append(append(all, keys...), args...)
	c.Cmd = *redis.NewCmd(ctx, all...)
	// Otherwise a cluster client asks Redis for it without a deadline, and again for each command if
	// Redis refuses COMMAND.
	c.Cmd.SetStepCount(1)
	return c
}

// Context is that of the caller. A hook that sees the command in a pipeline finds it by this.
func (c *noRetryCmd) Context() context.Context { return c.ctx }

// NoRetry is how go-redis asks.
func (*noRetryCmd) NoRetry() bool { return true }

// Abandon reports whether the command was written; if not, it never will be.
func (c *noRetryCmd) Abandon() (wasWritten bool) {
	return !c.state.CompareAndSwap(stateUnsent, stateAbandoned) && c.state.Load() == stateWritten
}

// Args is what go-redis calls to write the command. A cluster client calls it
// for its route before; then too much counts as written, which is the safe side.
// It cannot refuse to be written, and becomes a PING when it was left.
func (c *noRetryCmd) Args() []any {
	if !c.state.CompareAndSwap(stateUnsent, stateWritten) && c.state.Load() == stateAbandoned {
		return []any{"ping"}
	}
	return c.Cmd.Args()
}
