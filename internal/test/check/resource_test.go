package check_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// resources runs visit on both kinds of resource: for one process, and for many.
func resources(t *testing.T, visit func(t *testing.T, open func(name string, checked bool) check.Resource)) {
	t.Run("memory", func(t *testing.T) {
		visit(t, func(_ string, checked bool) check.Resource { return check.NewMemory(checked) })
	})
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		rdb := b.Client(t)
		visit(t, func(name string, checked bool) check.Resource {
			require.NoError(t, rdb.Del(context.Background(), name).Err())
			return check.NewRemote(rdb, name, checked)
		})
	})
}

// A holder is paused between its read and its write, while the next one works. Without a check of
// the fence, its write undoes the other's. With the check, its write is refused, and nothing is
// lost.
func TestAPausedHolderAgainstBothResources(t *testing.T) {
	ctx := context.Background()
	const older, newer = 1_700_000_000_000_001, 1_700_000_000_000_002
	resources(t, func(t *testing.T, open func(string, bool) check.Resource) {
		play := func(r check.Resource) (check.Audit, error) {
			late := check.Increment(ctx, r, older, func() {
				require.NoError(t, check.Increment(ctx, r, newer, func() {}))
			})
			require.NoError(t, check.Increment(ctx, r, newer, func() {}), "the same holder once more")
			audit, err := r.Audit(ctx)
			require.NoError(t, err)
			return audit, late
		}
		audit, late := play(open("unchecked", false))
		require.NoError(t, late)
		require.Equal(t, check.Audit{Value: 2, Accepted: 3, Stale: 1}, audit)
		require.Equal(t, int64(1), audit.Lost())

		audit, late = play(open("checked", true))
		require.ErrorIs(t, late, check.ErrStale)
		require.Equal(t, check.Audit{Value: 2, Accepted: 2, Rejected: 1}, audit)
		require.Zero(t, audit.Lost())
	})
}

// A read counts as well. After a read with a newer fence, older holders cannot write any more.
func TestAReadKeepsOlderHoldersOut(t *testing.T) {
	ctx := context.Background()
	resources(t, func(t *testing.T, open func(string, bool) check.Resource) {
		r := open("read", true)
		_, err := r.Read(ctx, 5)
		require.NoError(t, err)
		require.ErrorIs(t, r.Write(ctx, 4, 1), check.ErrStale)
		_, err = r.Read(ctx, 4)
		require.ErrorIs(t, err, check.ErrStale)
		require.NoError(t, r.Write(ctx, 5, 1))
	})
}
