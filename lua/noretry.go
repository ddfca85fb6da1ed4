package lua

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// noRetryCmd is a command that go-redis does not send again by itself after a lost reply. A second
// copy would do no harm. But the caller has to count its trust from the new sending, and go-redis
// does not say when that was.
//
// go-redis may spend all of a caller's time on dialling and on waiting for a connection, and write
// the command after the caller has left. Redis refuses a command that was left before it was
// written. So "nothing was sent" is certain.
type noRetryCmd struct {
	redis.Cmd
	ctx   context.Context //nolint:containedctx // for hooks
	state atomic.Int32
	keys  int
	text  [4]byte // the memory of the encoded keyCount
	args  [12]any // the memory of the arguments, unless there are more
}

const (
	stateUnsent int32 = iota // for a connection
	stateWritten
	stateAbandoned
)

func newNoRetryCmd(ctx context.Context, verb, script any, keys, args []any) *noRetryCmd {
	c := &noRetryCmd{ctx: ctx, keys: len(keys)}
	all := append(c.args[:0], verb, script, (*keyCount)(c))
	all = append(append(all, keys...), args...)
	c.Cmd = *redis.NewCmd(ctx, all...)
	// Otherwise a cluster client asks Redis for it without a deadline, and again for each command
	// if Redis refuses COMMAND.
	c.Cmd.SetStepCount(1)
	c.Cmd.SetFirstKeyPos(3) // so that it need not look at the keyCount
	return c
}

// Context is that of the caller. A hook that sees the command in a pipeline finds it by this.
func (c *noRetryCmd) Context() context.Context { return c.ctx }

// NoRetry is how go-redis asks.
func (*noRetryCmd) NoRetry() bool { return true }

// Abandon reports whether the command was written. If not, Redis will refuse it.
func (c *noRetryCmd) Abandon() (wasWritten bool) {
	return !c.state.CompareAndSwap(stateUnsent, stateAbandoned) && c.state.Load() == stateWritten
}

// keyCount is the argument of a noRetryCmd that says how many keys follow. go-redis encodes it at
// the moment when it writes the command, and not when it looks for a server or a connection. An
// AutoPipeliner, or a hook that prints the command, asks for it before. The command then counts as
// written too early, which is safe.
type keyCount noRetryCmd

// MarshalBinary is how go-redis encodes the argument.
func (c *keyCount) MarshalBinary() ([]byte, error) {
	// A cluster client sends the commands of a pipeline again after a failed dial and after a
	// redirect. It then keeps the old error if the reply to the new copy is lost. The old error
	// would say that the command did not run.
	c.SetErr(nil)
	return strconv.AppendInt(c.text[:0], int64(c.write()), 10), nil
}

// String is how a client that is not go-redis may encode the argument.
func (c *keyCount) String() string { return strconv.Itoa(c.write()) }

// write returns the number of keys. If the command was left before, it returns -1, which Redis
// refuses.
func (c *keyCount) write() int {
	if !c.state.CompareAndSwap(stateUnsent, stateWritten) && c.state.Load() == stateAbandoned {
		return -1
	}
	return c.keys
}
