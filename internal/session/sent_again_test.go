package session_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// retryHook sends a command again if it got no answer, as programs do.
type retryHook struct{}

func (retryHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (retryHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		var answer redis.Error
		if err != nil && !errors.As(err, &answer) {
			return next(ctx, cmd)
		}
		return err
	}
}

func (h retryHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(h, next)
}

// Redis runs a release, and the reply is lost. A hook sends it again, so the answer says that the lock is gone. It is no
// loss: the first copy has released the lock.
func TestAReleaseThatAHookSendsAgainIsNoLoss(t *testing.T) {
	t.Parallel()
	for name, kind := range stage.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				s.Client.AddHook(retryHook{})
				cut := s.Proxy.Inject(redistest.Rule{Match: stage.Runs(kind.Release), Times: 1, Action: redistest.CutReply()})
				_, release, err := kind.Take(s.Locks, t.Context())
				require.NoError(t, err)
				require.NoError(t, release(t.Context()))
				require.Equal(t, 1, cut.Bites())

				h, release, err := kind.Take(s.Locks, t.Context())
				require.NoError(t, err)
				require.NoError(t, s.Direct.FlushDB(t.Context()).Err())
				require.ErrorIs(t, release(t.Context()), redlatch.ErrLost, "it is one without a lost reply")
				<-h.Lost()
			})
		})
	}
	t.Run("local handoff", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := stage.InBubble(t)
			s.Client.AddHook(retryHook{})
			cut := s.Proxy.Inject(redistest.Rule{Match: stage.ATransfer, Times: 1, Action: redistest.CutReply()})
			first := s.Lock(t.Context())
			next, _ := s.Begin(t.Context())
			require.NoError(t, first.Unlock(t.Context()))
			require.Equal(t, 1, cut.Bites())
			s.Unlock(s.Soon(next))
			s.NothingLeft()
		})
	})
}
