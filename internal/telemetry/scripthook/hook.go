// Package scripthook measures the scripts of redlatch, as a hook of go-redis. It ignores all other
// commands.
package scripthook

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/telemetry"
	"github.com/redlatch/redlatch/lua"
)

type hook struct{ apply func(telemetry.Update) }

// New returns a hook that calls apply with each update. apply must not block.
func New(apply func(telemetry.Update)) redis.Hook { return hook{apply} }

// DialHook implements redis.Hook.
func (h hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		h.measure(time.Since(began), err, cmd)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		h.measure(time.Since(began), nil, cmds...)
		return err
	}
}

// measure measures the scripts among commands that were sent together. err is the error of a
// command that was sent alone. A panic here would be one of the command, so it ends here.
func (h hook) measure(took time.Duration, err error, cmds ...redis.Cmder) {
	defer func() { _ = recover() }()
	size := 0
	for _, cmd := range cmds {
		if name := scriptName(cmd); name != "" {
			h.apply(telemetry.NewUpdate(telemetry.ScriptDuration, took.Seconds(), name, result(cmp.Or(err, cmd.Err()))))
			size++
		}
	}
	if size > 0 {
		h.apply(telemetry.NewUpdate(telemetry.BatchSize, float64(size)))
	}
}

// result returns the label of an answer.
func result(err error) string {
	switch {
	case err == nil, errors.Is(err, redis.Nil):
		return "answered"
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		return "not_loaded" // the normal answer to the first use of a script; redlatch then sends its text
	case errors.As(err, new(redis.Error)):
		return "refused"
	}
	return "failed"
}

// scriptName returns which script of redlatch a command runs, or nothing.
func scriptName(cmd redis.Cmder) string {
	args := cmd.Args()
	if len(args) < 2 {
		return ""
	}
	verb, isVerb := args[0].(string)
	text, isText := args[1].(string)
	if !isVerb || !isText {
		return ""
	}
	return lua.ScriptName([]string{verb, text})
}
