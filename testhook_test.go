package redlatch_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/testhook"
)

// The module redlatchtest sees every kind of lock that a client has, and the session that renews
// them.
func TestTheTestHookShowsWhatAClientHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, err := redlatch.New(redistest.Bubble(t).Client())
		require.NoError(t, err)
		defer locks.Close(t.Context())
		hook := testhook.Of(locks)
		require.Empty(t, hook.Held())

		plain, err := locks.Mutex("plain").Lock(t.Context())
		require.NoError(t, err)
		fair, err := locks.FairMutex("fair").Lock(t.Context())
		require.NoError(t, err)
		permit, err := locks.Semaphore("permit", 1).Acquire(t.Context(), 1)
		require.NoError(t, err)
		var ids []string
		for _, a := range hook.Held() {
			ids = append(ids, a.ID)
		}
		require.ElementsMatch(t, []string{plain.ID(), fair.ID(), permit.ID()}, ids)
		require.Equal(t, 3, hook.Session.Watchdog.Len())
	})
}
