package locktest

import (
	"context"
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"
)

// unchanged asserts that act changes nothing that Redis has of the lock: keys, contents, and
// whether they expire.
func (f *fixture) unchanged(act func()) {
	f.Helper()
	before := f.state()
	act()
	if f.subject.Ordered {
		// A place in the queue may come late, from a command that was still in flight. The client
		// gives it up once no copy of that command can come any more.
		f.eventually(func() bool { return slices.Equal(before, f.state()) }, "nothing changed in redis for good")
		return // another check could meet such a place
	}
	require.Equal(f, before, f.state(), "act changes nothing in redis")
}

// state is everything that Redis has of the lock, as text.
func (f *fixture) state() []string {
	f.Helper()
	ctx := context.Background()
	var all []string
	for _, k := range f.allKeys() {
		ttl, err := f.admin.PTTL(ctx, k).Result()
		require.NoError(f, err)
		all = append(all, fmt.Sprintf("%s = %v, expires: %t", k, f.content(ctx, k), ttl > 0))
	}
	return all
}

func (f *fixture) content(ctx context.Context, key string) any {
	f.Helper()
	kind, err := f.admin.Type(ctx, key).Result()
	require.NoError(f, err)
	var v any
	switch kind {
	case "hash":
		v, err = f.admin.HGetAll(ctx, key).Result()
	case "string":
		v, err = f.admin.Get(ctx, key).Result()
	case "zset":
		v, err = f.admin.ZRangeWithScores(ctx, key, 0, -1).Result()
	case "list":
		v, err = f.admin.LRange(ctx, key, 0, -1).Result()
	default:
		v = kind
	}
	require.NoError(f, err)
	return v
}
