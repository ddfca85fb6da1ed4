package key_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
)

// The scripts take the tag of the channel from the key of a queue.
func TestAClientHasAChannelInTheSlotOfEachQueue(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"door", "a {door} b", "{door}", "door:42"} {
		channel := key.ClientInSlot("7d3b", name)
		require.Equal(t, key.Slot(name), key.Slot(channel), channel)
		require.Equal(t, channel, key.ClientInSlot("7d3b", key.ForMutex(name).Queue))
		require.Equal(t, channel, key.ClientInSlot("7d3b", key.ForSemaphore(name).Queue))
		require.True(t, key.IsSharded(channel))
		require.True(t, key.IsSharded(key.ForMutex(name).Channel))
	}
	require.False(t, key.IsSharded(key.ClientPrefix+"7d3b"))
}
