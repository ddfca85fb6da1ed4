package redlatchtest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// hook sees every command that a client sends. It must not look at the arguments of a command: to
// redlatch, a command whose arguments somebody has read counts as sent.
type hook struct{ server *Server }

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.server.clock.set()
		err := h.server.injected.original(next(ctx, cmd))
		if err != nil {
			cmd.SetErr(err)
		}
		return err
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.server.clock.set()
		err := h.server.injected.original(next(ctx, cmds))
		for _, cmd := range cmds {
			if err := cmd.Err(); err != nil {
				cmd.SetErr(h.server.injected.original(err))
			}
		}
		return err
	}
}
