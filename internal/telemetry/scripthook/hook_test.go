package scripthook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/telemetry"
	"github.com/redlatch/redlatch/internal/telemetry/scripthook"
	"github.com/redlatch/redlatch/lua"
)

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// text is the text of a script, which EVAL sends.
var text = lua.ScriptSources()[0]

func script(ctx context.Context) *redis.Cmd { return redis.NewCmd(ctx, "eval", text, 0) }

func TestOnlyScriptsOfRedlatchAreMeasured(t *testing.T) {
	var seen []string
	hook := scripthook.New(func(u telemetry.Update) {
		if u.Instrument == telemetry.ScriptDuration {
			require.GreaterOrEqual(t, u.Value, 0.0)
			u.Value = 0
		}
		seen = append(seen, fmt.Sprint(telemetry.Instruments[u.Instrument].Name, " ", u.Value, " ", u.Labels()))
	})
	ctx, name := t.Context(), lua.ScriptName([]string{"eval", text})
	require.NotEmpty(t, name)
	for want, err := range map[string]error{"answered": nil, "not_loaded": refusal("NOSCRIPT No matching script."), "refused": refusal("NOPERM no permissions"), "failed": io.EOF} {
		seen = nil
		process := hook.ProcessHook(func(context.Context, redis.Cmder) error { return err })
		require.Equal(t, err, process(ctx, script(ctx)))
		require.Equal(t, []string{"redlatch.script.duration 0 [" + name + " " + want + "]", "redlatch.batch.size 1 []"}, seen)
	}
	seen = nil
	process := hook.ProcessHook(func(context.Context, redis.Cmder) error { return nil })
	for _, other := range []redis.Cmder{
		redis.NewCmd(ctx, "get", text), redis.NewCmd(ctx, "eval", "return 1", 0), redis.NewCmd(ctx, "ping"), redis.NewCmd(ctx, 1, 2), redis.NewCmd(ctx),
	} {
		require.NoError(t, process(ctx, other))
	}
	require.Empty(t, seen)

	failed := script(ctx)
	failed.SetErr(io.EOF)
	batch := hook.ProcessPipelineHook(func(context.Context, []redis.Cmder) error { return io.EOF })
	require.Equal(t, io.EOF, batch(ctx, []redis.Cmder{script(ctx), redis.NewCmd(ctx, "ping"), failed}))
	require.Equal(t, []string{
		"redlatch.script.duration 0 [" + name + " answered]", "redlatch.script.duration 0 [" + name + " failed]", "redlatch.batch.size 2 []",
	}, seen)
}

func TestAPanicOfTheHookIsNoneOfTheCommand(t *testing.T) {
	hook := scripthook.New(func(telemetry.Update) { panic("a bug") })
	ctx, failure := t.Context(), errors.New("the answer")
	process := hook.ProcessHook(func(context.Context, redis.Cmder) error { return failure })
	require.Equal(t, failure, process(ctx, script(ctx)))
	batch := hook.ProcessPipelineHook(func(context.Context, []redis.Cmder) error { return nil })
	require.NoError(t, batch(ctx, []redis.Cmder{script(ctx)}))
}
