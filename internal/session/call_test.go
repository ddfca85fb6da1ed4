package session

import (
	"context"
	"io"
	"sync/atomic"
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
		require.GreaterOrEqual(t, s.Now().Add(time.Until(answer.Strays.until)), latest)
	})
}

// What two unanswered attempts may have got is given back again when both can have no
// effect any more: answered, or void. One of them is not enough.
func TestSecondReleaseComesAfterTheLastAttempt(t *testing.T) {
	const valid = 2 * time.Second
	type answers = chan result[int]
	play := func(t *testing.T, test func(one, other answers, released *atomic.Int64)) {
		synctest.Test(t, func(t *testing.T) {
			s := New(Config{})
			require.NoError(t, s.Heard(lua.Granted, 1_000_000_000_000))
			one, other := make(answers, 1), make(answers, 1)
			left := unanswered(s, s.Now().Add(valid), one).And(unanswered(s, s.Now().Add(valid), other))
			var released atomic.Int64
			s.GiveBack(left, time.Minute, func(context.Context) bool { released.Add(1); return true })
			synctest.Wait()
			require.EqualValues(t, 1, released.Load())
			test(one, other, &released)
			synctest.Wait()
			require.EqualValues(t, 2, released.Load())
		})
	}
	t.Run("both are answered", func(t *testing.T) {
		play(t, func(one, other answers, released *atomic.Int64) {
			other <- result[int]{err: errVoid}
			synctest.Wait()
			require.EqualValues(t, 1, released.Load())
			one <- result[int]{}
		})
	})
	t.Run("one is answered and one breaks off", func(t *testing.T) {
		play(t, func(one, other answers, released *atomic.Int64) {
			one <- result[int]{}
			other <- result[int]{err: io.EOF}
			time.Sleep(valid - time.Millisecond)
			require.EqualValues(t, 1, released.Load())
			time.Sleep(100 * time.Millisecond)
		})
	})
}
