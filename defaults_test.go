package redlatch_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// Redis keeps an unused fence for an hour, unless WithFenceRetention sets another time. It may keep
// the fence for up to an hour more.
func TestAFenceIsKeptForAnHourByDefault(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		a := s.Actor()
		s.Unlock(a.Lock("door"))
		left := s.Admin.PTTL(s.Context(), "redisson_lock_token:{door}").Val()
		require.LessOrEqual(s, left, 2*time.Hour)
		require.GreaterOrEqual(s, left, time.Hour)
	})
}

// If the lock is held, the error says which process has it.
func TestAHolderIsDescribedAsItsProcessByDefault(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	require.NoError(t, err)
	stage.InVirtualTime(t, func(s *stage.Stage) {
		a, b := s.Actor(), s.Actor()
		h := a.Lock("door")
		_, err := b.Mutex("door").TryLock(b.Ctx)
		var refused *redlatch.NotAcquiredError
		require.ErrorAs(s, err, &refused)
		require.Equal(s, fmt.Sprintf("%s pid %d", host, os.Getpid()), refused.Description)
		s.Unlock(h)
	})
}
