package redistest_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestCutReplyRunsTheCommandAndLosesTheAnswer(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		key := redistest.Name(t)
		cut := r.Inject(redistest.Rule{Match: redistest.Containing(key), Times: 1, Action: redistest.CutReply()})
		require.ErrorIs(t, r.client(once).Incr(ctx, key).Err(), io.EOF)
		require.Equal(t, 1, cut.Bites())
		require.Equal(t, "1", r.client().Get(ctx, key).Val())
	})
}

// go-redis does this by default, and it is why every script must be able to run twice.
func TestClientRepeatsWhatItGotNoAnswerTo(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		key := redistest.Name(t)
		cut := r.Inject(redistest.Rule{Match: redistest.Command("incr"), Times: 2, Action: redistest.CutReply()})
		require.EqualValues(t, 3, r.client().Incr(ctx, key).Val())
		require.Equal(t, 2, cut.Bites())
		require.Equal(t, 3, r.Forwarded("Incr"))
	})
}

func TestCutRequestAndResetLoseTheCommand(t *testing.T) {
	for name, action := range map[string]redistest.Action{
		"cut request": redistest.CutRequest(), "reset": redistest.Reset(),
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, r rig) {
				key := redistest.Name(t)
				cut := r.Inject(redistest.Rule{Match: redistest.Command("INCR"), Times: 1, Action: action})
				require.Error(t, r.client(once).Incr(ctx, key).Err())
				require.Equal(t, 1, cut.Bites())
				require.ErrorIs(t, r.client().Get(ctx, key).Err(), redis.Nil)
			})
		})
	}
}

func TestResetReplyRunsTheCommand(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		key := redistest.Name(t)
		r.Inject(redistest.Rule{Match: redistest.Command("INCR"), Times: 1, Action: redistest.ResetReply()})
		require.Error(t, r.client(once).Incr(ctx, key).Err())
		require.Equal(t, "1", r.client().Get(ctx, key).Val())
	})
}

func TestCutInAPipelineKeepsTheRepliesBefore(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		key := redistest.Name(t)
		r.Inject(redistest.Rule{Match: redistest.Command("GETSET"), Times: 1, Action: redistest.CutReply()})
		pipe := r.client(once).Pipeline()
		before := pipe.Incr(ctx, key)
		cut := pipe.GetSet(ctx, key, "7")
		after := pipe.Incr(ctx, key)
		_, err := pipe.Exec(ctx)
		require.Error(t, err)
		// go-redis returns the error for the whole batch, and keeps the values that it read.
		require.EqualValues(t, 1, before.Val())
		require.Empty(t, cut.Val())
		require.Zero(t, after.Val())
	})
}

func TestRefuseAnswersInItsPlaceWithoutRunningTheCommand(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		key := redistest.Name(t)
		refuse := r.Inject(redistest.Rule{Match: redistest.Command("SET"), Action: redistest.Refuse("OOM no room")})
		r.Record()
		pipe := r.client(once).Pipeline()
		first := pipe.Incr(ctx, key)
		refused := pipe.Set(ctx, key, "100", 0)
		last := pipe.Incr(ctx, key)
		_, _ = pipe.Exec(ctx)
		require.EqualValues(t, 1, first.Val())
		require.True(t, redis.IsOOMError(refused.Err()), refused.Err())
		require.EqualValues(t, 2, last.Val())
		require.Equal(t, 1, refuse.Bites())
		require.Zero(t, r.Forwarded("SET", "PING"))
		require.NotContains(t, r.Recorded(), []string{"PING"})
	})
}

func TestSwallowedCommandIsNeverAnsweredNorRun(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		key := redistest.Name(t)
		rule := redistest.Rule{Match: redistest.Command("INCR"), Times: 1, Action: redistest.Swallow()}
		swallow := r.Inject(rule)
		rdb := r.client(impatient)
		pipe := rdb.Pipeline()
		answered := pipe.Set(ctx, key, "5", 0)
		pipe.Incr(ctx, key)
		behind := pipe.Incr(ctx, key)
		_, _ = pipe.Exec(ctx)
		require.Equal(t, "OK", answered.Val())
		requireTimeout(t, behind.Err())
		require.Equal(t, 1, swallow.Bites())
		require.Equal(t, "5", rdb.Get(ctx, key).Val())
	})
}

func TestSilencedConnectionStaysOpenAndOthersWork(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		key := redistest.Name(t)
		r.Inject(redistest.Rule{Match: redistest.Command("INCR"), Times: 1, Action: redistest.SilenceBoth()})
		rdb := r.client(impatient)
		requireTimeout(t, rdb.Incr(ctx, key).Err())
		require.EqualValues(t, 1, rdb.Incr(ctx, key).Val())
	})
}

// A late original: the client has given up, and the command still arrives.
func TestHeldBackCommandRunsWhenReleased(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		key := redistest.Name(t)
		hold := r.Inject(redistest.Rule{Match: redistest.Containing("late"), Times: 1, Action: redistest.HoldBack()})
		rdb := r.client(impatient)
		pipe := rdb.Pipeline()
		pipe.GetSet(ctx, key, "late")
		pipe.Incr(ctx, key+":behind")
		_, err := pipe.Exec(ctx)
		requireTimeout(t, err)
		require.NoError(t, rdb.Set(ctx, key, "early", 0).Err())
		require.ErrorIs(t, rdb.Get(ctx, key+":behind").Err(), redis.Nil)
		require.Equal(t, 2, hold.Late())

		require.Equal(t, []any{"early", int64(1)}, hold.Release())
		require.Equal(t, "late", rdb.Get(ctx, key).Val())
		require.Empty(t, hold.Release(), "a command is late once")
		require.Equal(t, 1, hold.Bites())
	})
}

func TestHoldBackKeepsTheClientWaitingUntilItGivesUp(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		hold := r.Inject(redistest.Rule{Match: redistest.Command("INCR"), Times: 1, Action: redistest.HoldBack()})
		answer := make(chan error, 1)
		rdb := r.client(impatient)
		go func() { answer <- rdb.Incr(ctx, redistest.Name(t)).Err() }()
		hold.Await(1)
		require.Equal(t, []any{int64(1)}, hold.Release(), "released while the client waits")
		requireTimeout(t, <-answer)
	})
}

// A late copy: the client has its answer, and the same bytes arrive again.
func TestDuplicateRunsOnceMoreWhenReleased(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		key := redistest.Name(t)
		dup := r.Inject(redistest.Rule{Match: redistest.Command("INCR"), Times: 2, Action: redistest.Duplicate()})
		rdb := r.client()
		for i := range 3 {
			require.EqualValues(t, i+1, rdb.Incr(ctx, key).Val())
		}
		require.Equal(t, 2, dup.Bites())
		require.Equal(t, 2, dup.Late())
		require.Equal(t, []any{int64(4), int64(5)}, dup.Release())
		require.Equal(t, "5", rdb.Get(ctx, key).Val())
	})
}

func TestDelayedCommandStillRuns(t *testing.T) {
	for name, action := range map[string]redistest.Action{
		"reply": redistest.DelayReply(time.Millisecond), "request": redistest.DelayRequest(time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, r rig) {
				delay := r.Inject(redistest.Rule{Match: redistest.Command("INCR"), Action: action})
				require.EqualValues(t, 1, r.client().Incr(ctx, redistest.Name(t)).Val())
				require.Equal(t, 1, delay.Bites())
			})
		})
	}
}

// A client that got NOSCRIPT has not run the script. If the proxy lost that answer, the test would
// test nothing, and look as if it did.
func TestFaultWaitsForTheScriptThatReallyRuns(t *testing.T) {
	for name, action := range map[string]redistest.Action{
		"cut reply": redistest.CutReply(), "duplicate": redistest.Duplicate(),
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, r rig) {
				key := redistest.Name(t)
				source := "return redis.call('INCR', KEYS[1]) -- " + key
				bite := r.Inject(redistest.Rule{Match: redistest.Script(source), Times: 1, Action: action})
				rdb := r.client(once)
				_ = redis.NewScript(source).Run(ctx, rdb, []string{key}).Err()
				require.Equal(t, 1, bite.Bites())
				require.Equal(t, 1, r.Forwarded("EVALSHA"))
				require.Equal(t, 1, r.Forwarded("EVAL"))
				require.Equal(t, "1", rdb.Get(ctx, key).Val())
			})
		})
	}
}

func TestRuleSkipsThenBitesSoManyTimesUntilDisarmed(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		key := redistest.Name(t)
		bounded := r.Inject(redistest.Rule{
			Match: redistest.AllOf(redistest.Command("INCR"), redistest.Containing(key)),
			Skip:  1, Times: 2, Action: redistest.Refuse("ERR one"),
		})
		endless := r.Inject(redistest.Rule{Match: redistest.Command("INCR"), Skip: 2, Action: redistest.Refuse("ERR two")})
		rdb := r.client(once)
		var got []string
		for range 6 {
			if err := rdb.Incr(ctx, key).Err(); err != nil {
				got = append(got, err.Error())
			} else {
				got = append(got, "")
			}
		}
		require.Equal(t, []string{"", "ERR one", "ERR one", "", "ERR two", "ERR two"}, got)
		require.Equal(t, 2, bounded.Bites())
		endless.Disarm()
		require.NoError(t, rdb.Incr(ctx, key).Err())
		require.Equal(t, 2, endless.Bites())
	})
}

// requireTimeout is for a client that waited and got no answer.
func requireTimeout(t testing.TB, err error) {
	t.Helper()
	var timeout interface{ Timeout() bool }
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
}

// The answer says nothing about what the server did.
func TestFailAfterRunsTheCommandAndAnswersOtherwise(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		key := redistest.Name(t)
		failed := r.Inject(redistest.Rule{Match: redistest.Command("INCR"), Times: 1, Action: redistest.FailAfter("ERR not me")})
		odd := r.Inject(redistest.Rule{Match: redistest.Command("INCRBY"), Times: 1, Action: redistest.FailAfter(":7")})
		require.EqualError(t, r.client(once).Incr(ctx, key).Err(), "ERR not me")
		require.EqualValues(t, 7, r.client(once).IncrBy(ctx, key, 2).Val())
		require.Equal(t, "3", r.client().Get(ctx, key).Val())
		require.Equal(t, []int{1, 1}, []int{failed.Bites(), odd.Bites()})
	})
}

func TestLoseReplyRunsTheCommandAndSaysNothingMore(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		key := redistest.Name(t)
		lost := r.Inject(redistest.Rule{Match: redistest.Command("INCR"), Times: 1, Action: redistest.LoseReply()})
		impatient := r.client(once, func(o *redis.Options) { o.ReadTimeout = 50 * time.Millisecond })
		var timeout net.Error
		require.ErrorAs(t, impatient.Incr(ctx, key).Err(), &timeout)
		require.True(t, timeout.Timeout())
		require.Equal(t, "1", r.client().Get(ctx, key).Val())
		require.Equal(t, 1, lost.Bites())
	})
}
