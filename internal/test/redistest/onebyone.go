package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// OneByOne is the pipeline hook for a hook that knows only single commands. Each command of a
// pipeline passes through that hook, and is sent by itself, with the context of its caller.
func OneByOne(single interface {
	ProcessHook(next redis.ProcessHook) redis.ProcessHook
}, next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	process := single.ProcessHook(func(ctx context.Context, cmd redis.Cmder) error {
		return next(ctx, []redis.Cmder{cmd})
	})
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var failed error
		for _, cmd := range cmds {
			its := ctx
			if c, ok := cmd.(interface{ Context() context.Context }); ok {
				its = c.Context()
			}
			err := process(its, cmd)
			cmd.SetErr(err)
			if failed == nil {
				failed = err
			}
		}
		return failed
	}
}
