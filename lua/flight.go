package lua

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Flight notes whether a command was written to a connection. go-redis may spend
// all of a caller's time on dialling and on waiting for a connection, and then a
// command that was left behind was never sent.
//
// It is a hint for the error to give, not a ground to skip a clean-up: a command
// may be written in the instant in which it is left behind.
type Flight struct{ written atomic.Bool }

// Written reports whether the command was written, as far as it has come.
func (f *Flight) Written() bool { return f.written.Load() }

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
func (c once) Args() []any {
	if c.flight != nil {
		c.flight.written.Store(true)
	}
	return c.Cmd.Args()
}
