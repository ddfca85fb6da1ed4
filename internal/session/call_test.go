package session

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lua"
)

// The guess of the server's clock lags by as much as the last reply took. When
// it falls back while attempts are open, the end of the later attempt, or one
// counted from the guess of that moment, is not the latest end: a copy of an
// earlier attempt can still be granted after it. Found by models/acquire.pml.
func TestStraysLastAsLongAsTheLatestEndThatWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		const serverTime, lag = lua.Time(1_000_000_000_000), 300 * time.Millisecond
		require.NoError(t, s.Heard(lua.Granted, serverTime))

		ctx, cancel := context.WithCancel(t.Context())
		var latest lua.Time
		attempts := 0
		answer, err := Do(ctx, s, Call{Op: "lock", Name: "x", Limit: time.Second},
			func(ctx context.Context, voidAfter lua.Time) (int, error) {
				latest = max(latest, voidAfter)
				if attempts++; attempts == 1 {
					// Another command's reply took long, and tells an old time.
					require.NoError(t, s.Heard(lua.Granted, s.Now().Add(-lag)))
					return 0, errUnanswered
				}
				require.Less(t, voidAfter, latest, "the guess has fallen back")
				cancel()
				<-ctx.Done()
				return 0, ctx.Err()
			})
		require.Error(t, err)
		require.Equal(t, 2, attempts)
		require.GreaterOrEqual(t, answer.Strays.until, latest)
	})
}
