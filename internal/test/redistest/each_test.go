package redistest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestEachSpeaksBothProtocolsToBothServers(t *testing.T) {
	t.Setenv("REDLATCH_REAL_ONLY", "")
	t.Setenv("REDLATCH_FULL", "1")
	var ran []string
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		ran = append(ran, strings.TrimPrefix(t.Name(), "TestEachSpeaksBothProtocolsToBothServers/"))
		require.Equal(t, b.Protocol(), b.Client(t).Options().Protocol)
		require.Equal(t, strings.Contains(t.Name(), "real/"), b.IsReal())
		require.Equal(t, b.Addr(), b.Client(t).Options().Addr)
		key := b.Name(t)
		require.NoError(t, b.Client(t).Set(ctx, key, "v", 0).Err())
		require.Equal(t, "v", b.Client(t).Get(ctx, key).Val())
	})
	require.Subset(t, []string{"embedded/resp2", "embedded/resp3", "real/resp2", "real/resp3"}, ran)
	require.Contains(t, ran, "embedded/resp3")
	require.Equal(t, !redistest.RaceDetector, slices.Contains(ran, "embedded/resp2"))
	redistest.Shared(t) // without a server, the rest did not run
	require.Subset(t, ran, []string{"real/resp2", "real/resp3"})
}

func TestEachLeavesTheEmbeddedServerOutForOtherServers(t *testing.T) {
	t.Setenv("REDLATCH_REAL_ONLY", "1")
	var ran []bool
	redistest.Each(t, func(_ *testing.T, b redistest.Backend) { ran = append(ran, b.IsReal()) })
	redistest.Shared(t) // without a server, nothing ran
	require.Equal(t, []bool{true, true}, ran)
}
