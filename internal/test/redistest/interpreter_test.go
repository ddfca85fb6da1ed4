package redistest_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// Goal: the answer of a script does not depend on whose Lua state runs it. Method: compare both for
// everything that a script can return or get, with both ways to call it.
func TestKeptLuaAnswersAsMiniredisDoes(t *testing.T) {
	fills := `redis.call('SET', 'text', 'a') redis.call('HSET', 'hash', 'f', '1', 'g', '2') redis.call('ZADD', 'set', '1.5', 'm') `
	returns := map[string]string{
		"nothing": "", "nil": "return nil", "true": "return true", "false": "return false",
		"a number": "return 7", "a fraction": "return 7.9", "a negative": "return -7.9", "a long one": "return 946684800000600",
		"a text": "return 'a\\r\\nb'", "an empty text": "return ''", "an empty table": "return {}",
		"a table": "return {1, 'a', {2, {'b'}}, true, false, 3}", "a table with a hole": "return {1, nil, 3}", "a table with names": "return {a = 1}",
		"many values": "return 1, 2", "ok": "return {ok = 'FINE'}", "err": "return {err = 'MINE it is'}",
		"error_reply":      "return redis.error_reply('MINE it is')",
		"keys":             "return {KEYS, ARGV, #KEYS, #ARGV, KEYS[3] == nil}",
		"a status":         "return redis.call('SET', 'k', 'v')",
		"what a status is": "return redis.call('SET', 'k', 'v').ok", "what nothing is": "return redis.call('GET', 'no') == false",
		"an integer": "return redis.call('INCR', 'n')", "a bulk": "return redis.call('GET', 'text')", "no bulk": "return redis.call('GET', 'no')",
		"a list": "return redis.call('HGETALL', 'hash')", "an empty list": "return redis.call('HGETALL', 'no')",
		"a list with holes": "return redis.call('HMGET', 'hash', 'f', 'no', 'g')", "a score": "return redis.call('ZSCORE', 'set', 'm')",
		"numbers as arguments": "redis.call('SET', 'k', 946684800000600) redis.call('SET', 'l', 1.5) return redis.call('MGET', 'k', 'l')",
		"time":                 "return redis.call('TIME')",
		"an error":             "return redis.call('INCR', 'text')", "an error in words": "return redis.pcall('INCR', 'text').err", "an error returned": "return redis.pcall('HGET', 'text', 'f')",
		"what an error leaves": "redis.pcall('INCR', 'text') return redis.call('GET', 'text')",
		"a mistake":            "return 1 + {}", "its own error": "error('mine')",
	}
	synctest.Test(t, func(t *testing.T) {
		own, kept := redistest.Bubble(t), redistest.Bubble(t)
		ran := 0
		kept.KeepLua(func() { ran++ })
		for name, text := range returns {
			answers := func(v *redistest.Virtual) (all []any) {
				v.Server.FlushAll()
				rdb := v.Client()
				text := fills + text
				for _, ask := range []*redis.Cmd{
					rdb.EvalSha(ctx, redis.NewScript(text).Hash(), []string{"k"}), // not loaded yet
					rdb.Eval(ctx, text, []string{"k", "l"}, 1, "a"),
					rdb.EvalSha(ctx, redis.NewScript(text).Hash(), []string{"k", "l"}, "b"),
				} {
					answer, err := ask.Result()
					all = append(all, answer, fmt.Sprint(err))
				}
				return all
			}
			require.Equal(t, answers(own), answers(kept), name)
		}
		require.Equal(t, 3*len(returns), ran)
	})
}

// No other command runs while a script runs, and values that were set before stay the same.
func TestNothingComesBetweenTheCommandsOfAKeptScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		v.KeepLua(func() {})
		rdb := v.Client()
		for range 200 {
			go v.Server.FlushAll()
			require.EqualValues(t, 50, rdb.Eval(ctx, `
				redis.call('SET', 'n', '0')
				for i = 1, 50 do redis.call('INCR', 'n') end
				return tonumber(redis.call('GET', 'n'))`, nil).Val())
		}
	})
}

// A script that the server knows from the start needs no EVAL. The server refuses an invalid call
// as miniredis does.
func TestAKeptServerKnowsWhatWasLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		const text = "return ARGV[1]"
		v.KeepLua(func() {}, text)
		rdb := v.Client()
		require.Equal(t, "a", rdb.EvalSha(ctx, redis.NewScript(text).Hash(), nil, "a").Val())
		require.ErrorContains(t, rdb.EvalSha(ctx, redis.NewScript("return 1").Hash(), nil).Err(), "NOSCRIPT")
		require.ErrorContains(t, rdb.Do(ctx, "EVALSHA", "x").Err(), "wrong number of arguments")
	})
}

// PUBLISH is denied inside of scripts too, until that ends.
func TestPublishMayBeDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		v.KeepLua(func() {})
		rdb := v.Client()
		publish := func() error { return rdb.Eval(ctx, "return redis.call('PUBLISH', 'c', 'm')", nil).Err() }
		require.NoError(t, publish())
		require.Zero(t, v.DenyPublish(true))
		require.ErrorContains(t, publish(), "NOPERM")
		require.ErrorContains(t, rdb.Publish(ctx, "c", "m").Err(), "NOPERM")
		require.EqualValues(t, 2, v.DenyPublish(false))
		require.NoError(t, publish())
	})
}
