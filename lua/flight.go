package lua

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Flight is the way of a command to a connection. go-redis may spend all of a
// caller's time on dialling and on waiting for a connection, and write the command
// after the caller has left. A command that was left before it was written is not
// written any more, so that "nothing was sent" is a fact and no guess.
type Flight struct{ state atomic.Int32 }

const (
	waiting int32 = iota // for a connection
	written
	left
)

// Leave reports whether the command was written; if not, it never will be.
func (f *Flight) Leave() bool { return !f.state.CompareAndSwap(waiting, left) }

// write reports whether the command may be written, and notes that it is.
func (f *Flight) write() bool {
	return f.state.CompareAndSwap(waiting, written) || f.state.Load() == written
}

type flightKey struct{}

// Track returns a context whose next script notes its flight.
func Track(ctx context.Context, f *Flight) context.Context {
	return context.WithValue(ctx, flightKey{}, f)
}

// once is a command that go-redis does not send again by itself after a lost
// reply. The scripts could bear it; but whoever sends again here has to count
// trust from the new sending, and go-redis does not tell.
type once struct {
	*redis.Cmd
	flight *Flight // may be nil
}

func newOnce(ctx context.Context, args []any) once {
	flight, _ := ctx.Value(flightKey{}).(*Flight)
	return once{redis.NewCmd(ctx, args...), flight}
}

// NoRetry is how go-redis asks.
func (once) NoRetry() bool { return true }

// Args is what go-redis calls to write the command. A cluster client calls it
// for its route before; then too much counts as written, which is the safe side.
// It cannot refuse to be written, and becomes a PING when it was left.
func (c once) Args() []any {
	if c.flight != nil && !c.flight.write() {
		return []any{"ping"}
	}
	return c.Cmd.Args()
}
