package stage

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// GoexitHook ends the goroutine that sends a script, as FailNow of a test does in a hook.
type GoexitHook struct {
	Script string
	Before bool // before the script is sent; otherwise after its answer
	Times  atomic.Int64
}

func (e *GoexitHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (e *GoexitHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(e, next)
}

func (e *GoexitHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		bites := ScriptOf(cmd) == e.Script && e.Times.Add(-1) >= 0
		if bites && e.Before {
			runtime.Goexit()
		}
		err := next(ctx, cmd)
		if bites {
			runtime.Goexit()
		}
		return err
	}
}

// SlowScript delays the answer of one script, which Redis has run.
type SlowScript struct {
	armed         atomic.Bool
	Reached, Gate chan struct{}
}

// NewSlowScript makes a hook that delays nothing yet.
func NewSlowScript() *SlowScript {
	return &SlowScript{Reached: make(chan struct{}), Gate: make(chan struct{})}
}

// Arm delays the answer of the next script.
func (h *SlowScript) Arm() { h.armed.Store(true) }

func (h *SlowScript) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *SlowScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") && !redis.HasErrorPrefix(err, "NOSCRIPT") && h.armed.CompareAndSwap(true, false) {
			close(h.Reached)
			<-h.Gate
		}
		return err
	}
}

func (h *SlowScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(h, next)
}

// HostileContext is a context with one method that does not return.
type HostileContext struct {
	context.Context

	Method string
	Act    func()
}

func (h HostileContext) does(method string) {
	if h.Method == method {
		h.Act()
	}
}

func (h HostileContext) Err() error { h.does("Err"); return h.Context.Err() }

func (h HostileContext) Value(key any) any { h.does("Value"); return h.Context.Value(key) }

func (h HostileContext) Deadline() (t time.Time, ok bool) {
	h.does("Deadline")
	return h.Context.Deadline()
}

// afterScripts is a hook that runs after each script that was answered.
type afterScripts func()

func (afterScripts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h afterScripts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") && err == nil {
			h()
		}
		return err
	}
}

func (h afterScripts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(h, next)
}

// DoubtfulHook is a hook that lets one script run and then returns something else.
type DoubtfulHook struct {
	redis.Hook // nil: only commands pass here

	Script string
	Say    func() error
	Bites  atomic.Int64
}

func (d *DoubtfulHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *DoubtfulHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(d, next)
}

func (d *DoubtfulHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil || ScriptOf(cmd) != d.Script {
			return err
		}
		d.Bites.Add(1)
		err = d.Say()
		cmd.SetErr(err)
		return err
	}
}

// ServerError is an error that go-redis takes for an answer of the server.
type ServerError string

func (e ServerError) Error() string { return string(e) }

func (ServerError) RedisError() {}
