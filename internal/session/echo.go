package session

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lua"
)

// sendEcho sends an echo, which the pub/sub connection of this client should get; see
// pubsub.Config.
//
// A script sends it, because a PUBLISH goes to any node of a cluster, perhaps to one that has left
// it. A script has a key, so the node that has the slot of the key runs it.
func (s *Session) sendEcho(ctx context.Context, text string) error {
	return s.publish(ctx, s.echo.Args.Channel, text)
}

// publish has a script in the slot of the echoes publish a text. It makes one attempt. The error is
// pubsub.ErrEchoRefused if Redis refuses that.
func (s *Session) publish(ctx context.Context, channel any, text string) error {
	const limit = 2 * time.Second
	ctx = ByWorker(ctx)
	to := s.serverFor(s.echo.Lock)
	_, err := runAttempt(ctx, s, s.echo.Lock, to, s.attempt(ctx, to, limit, Operation{}), 0, func(ctx context.Context, rdb lua.Redis, _ lua.Time) (int64, error) {
		return lua.Echo(ctx, rdb, s.echo.Args.Lock, channel, text)
	})
	if err == nil {
		return nil
	}
	if class, _ := lua.Classify(err); class == lua.Refused || class == lua.Failed {
		return fmt.Errorf("%w: %w", pubsub.ErrEchoRefused, err)
	}
	return err
}
