package key

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestAKeyGivesItsNameBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOf(rapid.SampledFrom([]rune("ab:{}*?[]\\ \n^é"))).Draw(t, "name")
		if name == "" {
			return
		}
		check := func(k string, kind Kind) {
			got, gotKind, ok := Parse(k)
			if kind == FenceKind {
				if bare, braced := unbrace(name); braced {
					require.Equal(t, bare, got, k)
					return
				}
			}
			require.True(t, ok, k)
			require.Equal(t, name, got, k)
			require.Equal(t, kind, gotKind, k)
		}
		mutex, permits := ForMutex(name), ForSemaphore(name)
		check(mutex.Fence, FenceKind)
		check(mutex.Queue, QueueKind)
		check(permits.Permits, PermitsKind)
		check(permits.Queue, PermitsQueueKind)
	})
}

func TestOtherKeysGiveNoName(t *testing.T) {
	for _, k := range []string{
		"", "x", "redisson_lock_token", "redisson_lock_token:", "redisson_lock_token:x",
		"redisson_lock__channel:{x}", "redlatch:", "redlatch:queue", "redlatch:queue:", "redlatch:queue:x", "redlatch:queue:{}",
		"redlatch:queue::", "redlatch:queue::x", "redlatch:alive:{x}", "redlatch:holders:{x}", "redlatch:permits-alive:{x}", "redlatch:{x}",
		"redlatch:queue:{a{b}",
	} {
		name, _, ok := Parse(k)
		require.False(t, ok, "%q is no key of %q", k, name)
	}
}
