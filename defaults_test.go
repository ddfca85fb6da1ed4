package redlatch_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// Redis keeps an unused fence for an hour, unless WithFenceRetention sets another time. It may keep
// the fence for up to an hour more.
func TestAFenceIsKeptForAnHourByDefault(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		a := s.actor()
		s.unlock(a.lock("door"))
		left := s.admin.PTTL(s.Context(), "redisson_lock_token:{door}").Val()
		require.LessOrEqual(s, left, 2*time.Hour)
		require.GreaterOrEqual(s, left, time.Hour)
	})
}

// If the lock is held, the error says which process has it.
func TestAHolderIsDescribedAsItsProcessByDefault(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	require.NoError(t, err)
	inVirtualTime(t, func(s *stage) {
		a, b := s.actor(), s.actor()
		h := a.lock("door")
		_, err := b.Mutex("door").TryLock(b.ctx)
		var refused *redlatch.NotAcquiredError
		require.ErrorAs(s, err, &refused)
		require.Equal(s, fmt.Sprintf("%s pid %d", host, os.Getpid()), refused.Description)
		s.unlock(h)
	})
}
