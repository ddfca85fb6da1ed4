package lua_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lua"
)

// answered is an error as the server sends it.
type answered string

func (e answered) Error() string { return string(e) }
func (answered) RedisError()     {}

func TestEveryErrorHasOneMeaning(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		fault lua.ErrorClass
		code  string
	}{
		{answered("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."), lua.NotRun, "BUSY"},
		{answered("LOADING Redis is loading the dataset in memory"), lua.NotRun, "LOADING"},
		{answered("READONLY You can't write against a read only replica."), lua.NotRun, "READONLY"},
		{answered("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), lua.NotRun, "MASTERDOWN"},
		{answered("NOREPLICAS Not enough good replicas to write."), lua.NotRun, "NOREPLICAS"},
		{answered("CLUSTERDOWN The cluster is down"), lua.NotRun, "CLUSTERDOWN"},
		{answered("ERR Script attempted to execute a write command while the cluster is down and readonly"), lua.NotRun, "CLUSTERDOWN"},
		{answered("ERR Script attempted to execute a command while the cluster is down"), lua.NotRun, "CLUSTERDOWN"},
		{answered("Lua script attempted to execute a write command while the cluster is down and readonly"), lua.NotRun, "CLUSTERDOWN"},
		{answered("Lua script attempted to execute a command while the cluster is down"), lua.NotRun, "CLUSTERDOWN"},
		{answered("ERR Can not execute a write command 'set' while the cluster is down and readonly"), lua.NotRun, "CLUSTERDOWN"},
		{answered("ERR Can not execute a command 'time' while the cluster is down"), lua.NotRun, "CLUSTERDOWN"},
		{answered("ERR Can not execute a command 'time' for another reason"), lua.Failed, "ERR"},
		{answered("TRYAGAIN Multiple keys request during rehashing of slot"), lua.NotRun, "TRYAGAIN"},
		{answered("ERR Script attempted to access a non local key in a cluster node script: 0a1b, on @user_script:1."), lua.NotRun, "TRYAGAIN"},
		{answered("Script attempted to access a non local key in a cluster node"), lua.NotRun, "TRYAGAIN"},
		{answered("ERR Attempted to access a non local key in a cluster node script: on @user_script:1."), lua.NotRun, "TRYAGAIN"},
		{answered("Lua script attempted to access a non local key in a cluster node"), lua.NotRun, "TRYAGAIN"},
		{answered("ERR proxy: somebody attempted to access a non local key"), lua.Failed, "ERR"},
		{answered("MOVED 3999 127.0.0.1:6381"), lua.NotRun, "MOVED"},
		{answered("ASK 3999 127.0.0.1:6381"), lua.NotRun, "ASK"},
		{answered("NOSCRIPT No matching script. Please use EVAL."), lua.NotRun, "NOSCRIPT"},
		{answered("ERR max number of clients reached"), lua.NotRun, "MAXCLIENTS"},
		{answered("ERR max number of clients + cluster connections reached"), lua.NotRun, "MAXCLIENTS"},
		{answered("OOM command not allowed when used memory > 'maxmemory'. script: 0a1b, on @user_script:1."), lua.Refused, "OOM"},
		{answered("MISCONF Redis is configured to save RDB snapshots"), lua.Refused, "MISCONF"},
		{answered("WRONGTYPE Operation against a key holding the wrong kind of value"), lua.Refused, "WRONGTYPE"},
		{answered("NOAUTH Authentication required."), lua.Refused, "NOAUTH"},
		{answered("ERR Protocol error: unauthenticated multibulk length"), lua.Refused, "NOAUTH"},
		{answered("WRONGPASS invalid username-password pair or user is disabled."), lua.Refused, "WRONGPASS"},
		{answered("NOPERM this user has no permissions to run the 'evalsha' command"), lua.Refused, "NOPERM"},
		{answered("ERR The user executing the script can't run this command or subcommand script: 0a1b, on @user_script:1."), lua.Refused, "NOPERM"},
		{answered("ERR ACL failure in script: No permissions to access a key script: on @user_script:1."), lua.Refused, "NOPERM"},
		{answered("BADFENCE the stored fence of this lock cannot be counted up"), lua.Refused, "BADFENCE"},
		{answered("CROSSSLOT Keys in request don't hash to the same slot"), lua.Refused, "CROSSSLOT"},
		{answered("ERR unknown command 'EVALSHA'"), lua.Refused, "ERR"},
		{answered("BUSYGROUP no word is taken for the beginning of another"), lua.Failed, "BUSYGROUP"},
		{answered("TIMEDOUT never seen"), lua.Failed, "TIMEDOUT"},
		{answered("ERR upstream failure"), lua.Failed, "ERR"},
		{answered("ERR value is not an integer or out of range script: 0a1b, on @user_script:9."), lua.Failed, "ERR"},
		{answered("ERR Unknown Redis command called from script script: 0a1b, on @user_script:1."), lua.Failed, "ERR"},
		{answered("NOPROTO unsupported protocol version"), lua.Refused, "NOPROTO"},
		{answered("DENIED Redis is running in protected mode"), lua.Refused, "DENIED"},
		{answered(""), lua.Failed, ""},

		// Redis 6.2 says where before it says what.
		{answered("ERR Error running script (call to f_0a1b): @user_script:4: @user_script: 4: -OOM command not allowed"), lua.Refused, "OOM"},
		{answered("ERR Error running script (call to f_0a1b): @user_script:1: WRONGTYPE Operation against a key"), lua.Refused, "WRONGTYPE"},
		{answered("ERR Error running script (call to f_0a1b): @user_script:1: @user_script: 1: -READONLY You can't write"), lua.NotRun, "READONLY"},
		{answered("ERR Error running script (call to f_0a1b): @user_script:1: @user_script: 1: Lua script attempted to access a non local key in a cluster node"), lua.NotRun, "TRYAGAIN"},
		{answered("ERR Error running script (call to f_0a1b): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand"), lua.Refused, "NOPERM"},
		{answered("@user_script: 1: -OOM command not allowed when used memory > 'maxmemory'."), lua.Refused, "OOM"},

		// A hook may have wrapped it.
		{fmt.Errorf("traced: %w", answered("LOADING Redis is loading the dataset in memory")), lua.NotRun, "LOADING"},
		{fmt.Errorf("traced: %w", answered("OOM command not allowed")), lua.Refused, "OOM"},
		{fmt.Errorf("traced: %w", redis.ErrPoolTimeout), lua.NotRun, ""},

		{redis.ErrClosed, lua.Closed, "CLOSED"},
		{redis.ErrPoolTimeout, lua.NotRun, ""},
		{redis.ErrPoolExhausted, lua.NotRun, ""},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, lua.NotRun, ""},
		{&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, lua.NotRun, ""},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, lua.Unanswered, ""},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, lua.Unanswered, ""},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, lua.Unanswered, ""},
		{io.EOF, lua.Unanswered, ""},
		{io.ErrUnexpectedEOF, lua.Unanswered, ""},
		{context.Canceled, lua.Unanswered, ""},
		{context.DeadlineExceeded, lua.Unanswered, ""},
		{errors.New("never seen"), lua.Unanswered, ""},
		{&tls.CertificateVerificationError{Err: errors.New("signed by nobody")}, lua.NotRun, ""},
		// A hook may tell of two: the call ended, and the answer is of an earlier one.
		{errors.Join(context.Canceled, answered("OOM command not allowed")), lua.Unanswered, ""},
		{errors.Join(context.DeadlineExceeded, answered("OOM command not allowed")), lua.Unanswered, ""},
		{&lua.ReplyError{Script: "x", Reply: 1}, lua.Failed, "REPLY"},
	} {
		fault, code := lua.Classify(c.err)
		require.Equal(t, c.fault, fault, "%v", c.err)
		require.Equal(t, c.code, code, "%v", c.err)
	}
}

// call is one script that would write.
type call struct {
	name string
	run  func(context.Context, lua.Redis) (string, error)
}

func writers() []call {
	return []call{
		{"acquire", acquire("b:1")},
		{"re-entry", acquire("a:1", holds(2))},
		{"inner release", release("a:1", 1)},
		{"release", release("a:1", 0)},
		{"transfer", transfer("a:1", "a:2")},
		{"keep", keepLock("a:1", 1, hour)},
		{"force", force("")},
	}
}

// refusedEverywhere runs every script, each on a lock it could change, and
// expects the same refusal from all, and nothing changed.
func refusedEverywhere(t *testing.T, admin, rdb *redis.Client, fault lua.ErrorClass, code string, stored func(string) []string) {
	t.Helper()
	for _, c := range writers() {
		got, err := c.run(t.Context(), rdb)
		require.Error(t, err, "%s: %s", c.name, got)
		f, word := lua.Classify(err)
		require.Equal(t, code, word, "%s: %v", c.name, err)
		require.Equal(t, fault, f, "%s: %v", c.name, err)
		require.Equal(t, stored(c.name), strings.Split(keyspace(t, admin), "; "), c.name)
	}
}

func oneTry(o *redis.Options) { o.MaxRetries = -1 }

const heldBefore = "lock 1h a:1:3; fence forever 7"

// given puts a lock of a:1 there and says that it must still be there.
func given(t *testing.T, admin *redis.Client) func(string) []string {
	t.Helper()
	prepare(t, admin, "HSET @L a:1 3", "PEXPIRE @L 3600000", "SET @F 7")
	return func(string) []string { return strings.Split(heldBefore, "; ") }
}

func TestWithoutMemoryNothingIsGrantedAndEverythingIsReleased(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	rdb := dial(t, s.addr, 3, nil)
	full := func() { prepare(t, rdb, "CONFIG SET maxmemory 1") }
	empty := func(given ...string) {
		prepare(t, rdb, "CONFIG SET maxmemory 0", "FLUSHALL")
		prepare(t, rdb, given...)
		full()
	}
	heldByA := []string{"HSET @L a:1 3", "PEXPIRE @L 3600000", "SET @F 5000000000000000"}
	for _, r := range []row{
		{"a free lock", []string{"SET @F 7"}, acquire("a:1"), "OOM", "fence forever 7"},
		{"a free lock, no fence", nil, acquire("a:1", about("me")), "OOM", ""},
		{"re-entry", heldByA, acquire("a:1", holds(4)), "granted 5000000000000000", "lock 1h a:1:4; fence forever 5000000000000000"},
		{"inner release", heldByA, release("a:1", 2), "kept", "lock 1h a:1:2; fence forever 5000000000000000"},
		{"release", heldByA, release("a:1", 0), "freed, received by 0", "fence forever 5000000000000000"},
		{"renewal", heldByA, renew("a:1", 3*hour), "extended", "lock 3h a:1:3; fence forever 5000000000000000"},
		{"keep", heldByA, keepLock("a:1", 1, 3*hour), "kept", "lock 3h kept-x:1:1; fence forever 5000000000000000"},
		{"transfer", heldByA, transfer("a:1", "a:2"), "granted 5000000000000001", "lock 2h a:2:1; fence forever 5000000000000001"},
		{"copy of a transfer, fence lost", []string{"HSET @L a:2 1", "PEXPIRE @L 3600000"}, transfer("a:1", "a:2"), "granted clock",
			"lock 2h a:2:1; fence forever clock"},
		{"re-entry that does not extend, fence lost", []string{"HSET @L a:1 1", "PEXPIRE @L 7200000"}, acquire("a:1", holds(2), lease(0)), "granted clock",
			"lock 2h a:1:2; fence forever clock"},
		{"re-entry, fence lost", []string{"HSET @L a:1 1", "PEXPIRE @L 3600000"}, acquire("a:1", holds(2)), "granted clock",
			"lock 1h a:1:2; fence forever clock"},
		{"force", heldByA, force(""), "freed a:1", "fence forever 5000000000000000"},
	} {
		empty(r.given...)
		got, err := r.call(t.Context(), rdb)
		if err != nil {
			var fault lua.ErrorClass
			fault, got = lua.Classify(err)
			require.Equal(t, lua.Refused, fault)
		}
		require.Equal(t, r.reply, got, r.name)
		require.Equal(t, r.after, keyspace(t, rdb), r.name)
	}
}

func TestAReplicaRefusesEverythingAndNothingRan(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	admin, rdb := dial(t, s.addr, 3, nil), dial(t, s.addr, 3, oneTry)
	stored := given(t, admin)
	prepare(t, admin, "REPLICAOF 127.0.0.1 1")
	for _, c := range writers()[1:] { // acquire finds the lock busy before it would write
		_, err := c.run(t.Context(), rdb)
		fault, code := lua.Classify(err)
		require.Equal(t, "READONLY", code, "%s: %v", c.name, err)
		require.Equal(t, lua.NotRun, fault)
		require.Equal(t, stored(""), strings.Split(keyspace(t, admin), "; "), c.name)
	}
	answer, err := renew("a:1", 3*hour)(t.Context(), rdb)
	require.NoError(t, err)
	require.Equal(t, "refused", answer)
	prepare(t, admin, "CONFIG SET replica-serve-stale-data no")
	_, err = acquire("a:1")(t.Context(), rdb)
	fault, code := lua.Classify(err)
	require.Equal(t, "MASTERDOWN", code, err)
	require.Equal(t, lua.NotRun, fault)
}

// A replica that was made the target of a client, and lacks what its master has: it
// refuses to write, and so it does not say that anything is gone.
func TestAReplicaThatLacksItNeverSaysGone(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	admin, rdb := dial(t, s.addr, 3, nil), dial(t, s.addr, 3, oneTry)
	prepare(t, admin, "REPLICAOF 127.0.0.1 1")
	w := permitWaiter("a:1", permitCall{})
	for _, c := range []call{
		{"lock", acquire("a:1")},
		{"re-entry", acquire("a:1", holds(2))},
		{"unlock", release("a:1", 0)},
		{"inner unlock", release("a:1", 1)},
		{"hand-over", transfer("a:1", "a:2")},
		{"keep", keepLock("a:1", 1, hour)},
		{"keep a permit", keepPermit("a:1", 1, permitCall{})},
		{"force unlock", force("a:1")},
		{"fair leave", leave("a:1")},
		{"fair beat", beat("a:1")},
		{"fair join", join("a:1")},
		{"fair force release", forceFair("")},
		{"removal", removeWaiter("a:1")},
		{"search", find("a:1", "", 1)},
		{"release", permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			return lua.ReleasePermits(ctx, rdb, lua.ReleasePermitsParams{Keys: semaphoreKeys, Waiter: w, ClientChannels: "c"})
		})},
		{"beat", permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			return lua.PermitHeartbeats(ctx, rdb, 0, "c", true, []lua.PermitHeartbeat{{Keys: semaphoreKeys, Waiter: w, Limit: 8}})
		})},
		{"acquire", permits(func(ctx context.Context, rdb lua.Redis) (any, error) { return take(ctx, rdb, "a:1", permitCall{}) })},
		{"force release", permits(func(ctx context.Context, rdb lua.Redis) (any, error) {
			units, _, err := lua.ForceReleasePermits(ctx, rdb, semaphoreKeys, "a:1", 0, "c")
			return units, err
		})},
	} {
		got, err := c.run(t.Context(), rdb)
		require.Error(t, err, "%s: %s", c.name, got)
		fault, code := lua.Classify(err)
		require.Equal(t, "READONLY", code, "%s: %v", c.name, err)
		require.Equal(t, lua.NotRun, fault, c.name)
	}
	for lease := range 2 {
		answer, err := renew("a:1", time.Duration(lease)*hour)(t.Context(), rdb)
		require.NoError(t, err)
		require.Equal(t, "refused", answer)
		answers, err := lua.RenewPermits(t.Context(), rdb, 0, []lua.PermitRenewal{
			{Permits: permitNames.Permits, Holders: permitNames.Holders, Acquisition: "a:1", Units: 1, Lease: time.Duration(lease) * hour},
		})
		require.NoError(t, err)
		require.Equal(t, []lua.RenewAnswer{lua.RenewRefused}, answers)
	}
	beats, err := lua.Heartbeats(t.Context(), rdb, 0, "c", true, []lua.Heartbeat{{Keys: fairKeys, Waiter: waiter("a:1")}, {Keys: fairKeys, Waiter: waiter("a:2")}})
	require.NoError(t, err)
	for _, a := range beats {
		require.Equal(t, lua.Denied, a.Status)
	}
}

// A replica that lags may have a holder and waiters that are gone. It does not say that
// another has the lock, or that a waiter is not there.
func TestAReplicaThatLagsSaysNothingOfOthers(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	admin, rdb := dial(t, s.addr, 3, nil), dial(t, s.addr, 3, oneTry)
	prepare(t, admin, with(heldFair, bcQueued)...)
	prepare(t, admin, "REPLICAOF 127.0.0.1 1")
	for name, call := range map[string]func(context.Context, lua.Redis) (string, error){
		"force release": force("b:1"), "fair force release": forceFair("b:1"),
		"removal": removeWaiter("a:1"), "search": find("a:1", "", 10), "search of a part": find("a:1", "", 1),
	} {
		got, err := call(t.Context(), rdb)
		require.Error(t, err, "%s: %s", name, got)
		fault, code := lua.Classify(err)
		require.Equal(t, "READONLY", code, "%s: %v", name, err)
		require.Equal(t, lua.NotRun, fault, name)
	}
}

// A replica that lags may have a limit that is over. It does not refuse a request for it.
func TestAReplicaThatLagsSaysNothingOfLimits(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	admin, rdb := dial(t, s.addr, 3, nil), dial(t, s.addr, 3, oneTry)
	asked := map[lua.Status]permitCall{lua.LimitDiffers: {limit: 8}, lua.OverLimit: {limit: 4, units: 5}}
	_, err := take(t.Context(), rdb, "a:1", permitCall{limit: 4})
	require.NoError(t, err)
	for status, call := range asked {
		reply, err := take(t.Context(), rdb, "a:2", call)
		require.NoError(t, err)
		require.Equal(t, status, reply.Status)
	}
	prepare(t, admin, "REPLICAOF 127.0.0.1 1")
	for status, call := range asked {
		_, err := take(t.Context(), rdb, "a:2", call)
		fault, code := lua.Classify(err)
		require.Equal(t, "READONLY", code, "%v: %v", status, err)
		require.Equal(t, lua.NotRun, fault)
	}
}

func TestTooFewReplicasRefuseEveryWrite(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	if s.version < 700 {
		t.Skip("Redis 6.2 does not ask for replicas inside scripts")
	}
	admin, rdb := dial(t, s.addr, 3, nil), dial(t, s.addr, 3, oneTry)
	stored := given(t, admin)
	prepare(t, admin, "CONFIG SET min-replicas-to-write 1")
	refusesWrites(t, admin, rdb, "NOREPLICAS", lua.NotRun, stored)
}

// refusesWrites is refusedEverywhere for a server that still lets us read.
func refusesWrites(t *testing.T, admin, rdb *redis.Client, code string, want lua.ErrorClass, stored func(string) []string) {
	t.Helper()
	for _, c := range writers()[1:] {
		_, err := c.run(t.Context(), rdb)
		fault, word := lua.Classify(err)
		require.Equal(t, code, word, "%s: %v", c.name, err)
		require.Equal(t, want, fault)
		require.Equal(t, stored(c.name), strings.Split(keyspace(t, admin), "; "), c.name)
	}
	answer, err := renew("a:1", 3*hour)(t.Context(), rdb)
	require.NoError(t, err)
	require.Equal(t, "refused", answer)
}

func TestAServerThatCannotSaveRefusesEveryWrite(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	admin, rdb := dial(t, s.addr, 3, nil), dial(t, s.addr, 3, oneTry)
	stored := given(t, admin)
	// A directory stands where the snapshot should be renamed to.
	require.NoError(t, os.MkdirAll(filepath.Join(s.Dir(), "dump.rdb", "x"), 0o700))
	require.NoError(t, admin.ConfigSet(t.Context(), "save", "3600 1").Err())
	prepare(t, admin, "BGSAVE")
	require.Eventually(t, func() bool {
		return strings.Contains(admin.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
	}, 20*time.Second, 5*time.Millisecond)
	refusesWrites(t, admin, rdb, "MISCONF", lua.Refused, stored)
}

func TestABusyServerRunsNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	admin, rdb := dial(t, s.addr, 3, nil), dial(t, s.addr, 3, oneTry)
	stored := given(t, admin)
	prepare(t, admin, "CONFIG SET lua-time-limit 1")
	endless := dial(t, s.addr, 3, func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, -1 })
	done := make(chan error, 1)
	go func() { done <- endless.Eval(context.Background(), "while true do end", nil).Err() }()
	require.Eventually(t, func() bool { return redis.HasErrorPrefix(rdb.Ping(t.Context()).Err(), "BUSY") },
		20*time.Second, 5*time.Millisecond)
	for _, c := range writers() {
		_, err := c.run(t.Context(), rdb)
		fault, code := lua.Classify(err)
		require.Equal(t, "BUSY", code, "%s: %v", c.name, err)
		require.Equal(t, lua.NotRun, fault)
	}
	require.NoError(t, admin.ScriptKill(t.Context()).Err())
	require.Error(t, <-done)
	require.Equal(t, stored(""), strings.Split(keyspace(t, admin), "; "))
}

// The server looks at its clients every 2 MB of what it loads. With a delay per
// key it is at it for seconds, of which the test waits for the first looks only.
func TestALoadingServerRunsNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--save", "3600", "1", "--rdbcompression", "no", "--key-load-delay", "100000")
	rdb := dial(t, s.addr, 2, oneTry)
	for i := range 40 {
		require.NoError(t, rdb.Set(t.Context(), fmt.Sprint(i), make([]byte, 2<<20), 0).Err())
	}
	s.Stop()
	s.Relaunch()
	_, err := acquire("a:1")(t.Context(), rdb)
	fault, code := lua.Classify(err)
	require.Equal(t, "LOADING", code, "%v", err)
	require.Equal(t, lua.NotRun, fault)
}

func TestDeniedCommandsKeysAndChannelsAreNamedAndChangeNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	admin := dial(t, s.addr, 3, nil)
	stored := given(t, admin)
	as := func(rules ...string) *redis.Client {
		t.Helper()
		name := fmt.Sprintf("u%d", time.Now().UnixNano())
		args := []any{"ACL", "SETUSER", name, "on", ">p"}
		for _, r := range rules {
			args = append(args, r)
		}
		require.NoError(t, admin.Do(t.Context(), args...).Err())
		return dial(t, s.addr, 3, func(o *redis.Options) { o.Username, o.Password = name, "p" })
	}
	all := []string{"allkeys", "allchannels", "+@all"}

	t.Run("no scripts", func(t *testing.T) {
		refusedEverywhere(t, admin, as(append(all, "-evalsha")...), lua.Refused, "NOPERM", stored)
	})
	t.Run("other keys", func(t *testing.T) {
		refusedEverywhere(t, admin, as("+@all", "allchannels", "~other:*"), lua.Refused, "NOPERM", stored)
	})
	t.Run("nothing inside scripts", func(t *testing.T) {
		refusedEverywhere(t, admin, as("+evalsha", "+eval", "allkeys"), lua.Refused, "NOPERM", stored)
	})
	for _, denied := range []struct {
		command string
		by      []string
		after   string
	}{
		{"time", []string{"acquire", "re-entry", "transfer"}, heldBefore},
		{"hgetall", []string{"acquire", "re-entry", "force"}, heldBefore},
		{"hexists", []string{"inner release", "release", "transfer"}, heldBefore},
		{"get", []string{"re-entry"}, heldBefore},
		{"pexpire", []string{"re-entry", "transfer"}, heldBefore},
		{"pttl", []string{"acquire"}, heldBefore},
		{"hdel", []string{"inner release"}, heldBefore},
		{"del", []string{"release", "force"}, heldBefore},
	} {
		t.Run("without "+denied.command, func(t *testing.T) {
			rdb := as(append(all, "-"+denied.command)...)
			for _, c := range writers() {
				for _, name := range denied.by {
					if c.name != name {
						continue
					}
					_, err := c.run(t.Context(), rdb)
					fault, code := lua.Classify(err)
					require.Equal(t, "NOPERM", code, "%s: %v", c.name, err)
					require.Equal(t, lua.Refused, fault)
					require.Equal(t, denied.after, keyspace(t, admin), c.name)
				}
			}
		})
	}
	t.Run("a fresh grant is whole or not there", func(t *testing.T) {
		for command, after := range map[string]string{"set": "", "hset": "fence forever clock", "pexpire": "fence forever clock"} {
			require.NoError(t, admin.FlushAll(t.Context()).Err())
			_, err := acquire("a:1", about("me"))(t.Context(), as(append(all, "-"+command)...))
			_, code := lua.Classify(err)
			require.Equal(t, "NOPERM", code, "%s: %v", command, err)
			require.Equal(t, after, keyspace(t, admin), command)
		}
		for _, rules := range [][]string{{"-pexpire", "-del"}, {"-@keyspace"}} {
			for _, holder := range []string{"", "me"} {
				require.NoError(t, admin.FlushAll(t.Context()).Err())
				_, err := acquire("a:1", about(holder), keepFor(0))(t.Context(), as(append(all, rules...)...))
				_, code := lua.Classify(err)
				require.Equal(t, "NOPERM", code, "%s: %v", rules, err)
				require.Zero(t, admin.Exists(t.Context(), names.Lock).Val(), rules)
			}
		}
		require.NoError(t, admin.FlushAll(t.Context()).Err())
		_, err := acquire("a:1")(t.Context(), as("+@all", "~"+names.Lock))
		_, code := lua.Classify(err)
		require.Equal(t, "NOPERM", code, err)
		require.Empty(t, keyspace(t, admin))
	})
	t.Run("a refused transfer leaves the lock with the old holder", func(t *testing.T) {
		for _, command := range []string{"pexpire", "set", "hset", "hdel"} {
			require.NoError(t, admin.FlushAll(t.Context()).Err())
			given(t, admin)
			_, err := transfer("a:1", "a:2")(t.Context(), as(append(all, "-"+command)...))
			_, code := lua.Classify(err)
			require.Equal(t, "NOPERM", code, "%s: %v", command, err)
			got, err := release("a:1", 0)(t.Context(), admin)
			require.NoError(t, err)
			require.Equal(t, "freed, received by 0", got, command)
		}
	})
	t.Run("a refused attach or keep leaves the lease as it was", func(t *testing.T) {
		exported := func(p *lua.TransferParams) { p.Exported = true }
		for _, command := range []string{"pexpire", "set", "hset", "hdel"} {
			for what, call := range map[string]func(context.Context, lua.Redis) (string, error){
				"attach": transfer("a:1", "a:2", exported), "keep": keepLock("a:1", 1, 3*hour), "keep for less": keepLock("a:1", 1, time.Minute),
			} {
				if strings.HasPrefix(what, "keep") && command == "set" {
					continue // which it does not use
				}
				require.NoError(t, admin.FlushAll(t.Context()).Err())
				given(t, admin)
				before := admin.PTTL(t.Context(), names.Lock).Val()
				_, err := call(t.Context(), as(append(all, "-"+command)...))
				_, code := lua.Classify(err)
				require.Equal(t, "NOPERM", code, "%s, %s: %v", what, command, err)
				require.InDelta(t, before, admin.PTTL(t.Context(), names.Lock).Val(), float64(30*time.Second), "%s, %s", what, command)
			}
		}
	})
	t.Run("a channel that is denied still lets go", func(t *testing.T) {
		for _, rules := range [][]string{{"+@all", "allkeys", "resetchannels"}, append(all, "-publish")} {
			require.NoError(t, admin.FlushAll(t.Context()).Err())
			given(t, admin)
			got, err := release("a:1", 0)(t.Context(), as(rules...))
			require.NoError(t, err)
			require.Equal(t, "freed, received by -1", got)
			given(t, admin)
			got, err = force("")(t.Context(), as(rules...))
			require.NoError(t, err)
			require.Equal(t, "freed a:1", got)
			require.Equal(t, "fence forever 7", keyspace(t, admin))
		}
	})
	t.Run("a lock of a batch that is denied does not stop the others", func(t *testing.T) {
		prepare(t, admin, "FLUSHALL", "HSET {x}1 a:1 1", "HSET {x}2 a:2 1")
		rdb := as(append(all, "-pexpire")...)
		answers, err := lua.Renew(t.Context(), rdb, []lua.Renewal{
			{LockKey: "{x}1", Acquisition: "a:1", Lease: hour}, {LockKey: "{x}2", Acquisition: "a:2"},
			{LockKey: "{x}2", Acquisition: "b:2", Lease: hour},
		})
		require.NoError(t, err)
		require.Equal(t, []lua.RenewAnswer{lua.RenewRefused, lua.RenewHeld, lua.RenewGone}, answers)
	})
}

func TestNoPasswordAndAWrongOneAreRefusals(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--requirepass", "secret")
	for password, want := range map[string]string{"": "NOAUTH", "guess": "WRONGPASS"} {
		for _, protocol := range []int{2, 3} {
			rdb := dial(t, s.addr, protocol, func(o *redis.Options) { o.Password = password })
			_, err := acquire("a:1")(t.Context(), rdb)
			fault, code := lua.Classify(err)
			require.Equal(t, want, code, "%v", err)
			require.Equal(t, lua.Refused, fault)
		}
	}
}

func TestWhatNeverReachedTheServerDidNotRun(t *testing.T) {
	t.Parallel()
	t.Run("no room for a connection", func(t *testing.T) {
		s := startServer(t)
		admin := dial(t, s.addr, 2, func(o *redis.Options) { o.PoolSize = 1 })
		prepare(t, admin, "CONFIG SET maxclients 1")
		rdb := dial(t, s.addr, 2, oneTry)
		_, err := acquire("a:1")(t.Context(), rdb)
		// The server says so and hangs up at once: whether the words are read
		// or the writing fails first is a matter of luck.
		if fault, code := lua.Classify(err); fault != lua.Unanswered {
			require.Equal(t, "MAXCLIENTS", code, "%v", err)
			require.Equal(t, lua.NotRun, fault)
		}
		require.Empty(t, keyspace(t, admin))
	})
	t.Run("no connection in the pool", func(t *testing.T) {
		s := startServer(t)
		rdb := dial(t, s.addr, 3, func(o *redis.Options) { o.PoolSize, o.PoolTimeout = 1, time.Millisecond })
		conn := rdb.Conn()
		defer conn.Close()
		require.NoError(t, conn.Ping(t.Context()).Err())
		_, err := acquire("a:1")(t.Context(), rdb)
		fault, _ := lua.Classify(err)
		require.Equal(t, lua.NotRun, fault, "%v", err)
	})
	t.Run("nobody listens", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		rdb := dial(t, l.Addr().String(), 3, func(o *redis.Options) { o.MaxRetries, o.DialerRetries = -1, 1 })
		_, err = acquire("a:1")(t.Context(), rdb)
		fault, _ := lua.Classify(err)
		require.Equal(t, lua.NotRun, fault, "%v", err)
	})
	t.Run("closed client", func(t *testing.T) {
		rdb := dial(t, "127.0.0.1:1", 3, nil)
		require.NoError(t, rdb.Close())
		_, err := acquire("a:1")(t.Context(), rdb)
		fault, code := lua.Classify(err)
		require.Equal(t, lua.Closed, fault, "%v", err)
		require.Equal(t, "CLOSED", code)
	})
}

func TestAnEndedContextLeavesTheOutcomeOpen(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		require.NoError(t, b.rdb.Ping(t.Context()).Err())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := acquire("a:1")(ctx, b.rdb)
		if err != nil { // go-redis may or may not look at it before it sends
			fault, _ := lua.Classify(err)
			require.Equal(t, lua.Unanswered, fault, "%v", err)
			require.ErrorIs(t, err, context.Canceled)
		}
	})
}
