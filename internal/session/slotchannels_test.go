package session

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
)

// A master that hangs does not answer the question about channels. Closing does not wait for it.
func TestClosingEndsTheQuestionAboutChannels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Bool
		s := fresh(t, Config{Deployment: node.Deployment{ClusterSlots: noSlots}, Redis: processFunc(func(ctx context.Context, _ redis.Cmder) error {
			asked.Store(true)
			<-ctx.Done()
			return ctx.Err()
		})})
		s.FoundCluster()
		answered := s.AskSlotChannel()
		synctest.Wait()
		require.True(t, asked.Load())
		require.Zero(t, finish(t, s))
		<-answered
		require.False(t, s.NeedsSlotChannel())
	})
}
