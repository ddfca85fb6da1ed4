package lua_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lua"
)

// A row says what is stored, which script runs, what it answers and what is
// stored then. TTLs are whole hours, rounded up, so that no test depends on
// how fast the machine is.
type row struct {
	name  string
	given []string
	call  func(ctx context.Context, rdb lua.Redis) (string, error)
	reply string
	after string
}

func runRows(t *testing.T, rows []row) {
	t.Helper()
	each(t, func(t *testing.T, b *backend) {
		for _, r := range rows {
			t.Run(r.name, func(t *testing.T) {
				require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
				prepare(t, b.rdb, r.given...)
				got, err := r.call(t.Context(), b.rdb)
				if err != nil {
					fault, code := lua.Classify(err)
					want := lua.Refused
					if code == "REPLY" {
						want = lua.Failed
					}
					require.Equal(t, want, fault, err)
					got = code
				}
				require.Equal(t, r.reply, got)
				require.Equal(t, r.after, keyspace(t, b.rdb))
			})
		}
	})
}

var statusNames = map[lua.Status]string{
	lua.Granted: "granted", lua.Busy: "busy", lua.Gone: "gone", lua.Void: "void",
	lua.Freed: "freed", lua.StillHeld: "kept", lua.NotHeld: "nobody", lua.Kept: "kept",
	lua.QueueNotEmpty: "behind",
	lua.LimitDiffers:  "differs", lua.OverLimit: "too many",
	lua.Queued: "queued", lua.LeftQueue: "left", lua.Removed: "removed", lua.Denied: "denied",
}

func showFence(f int64, now lua.Time) string {
	switch {
	case f == 0:
		return ""
	case f == int64(now):
		return " clock"
	}
	return fmt.Sprintf(" %d", f)
}

func hours(d time.Duration) string {
	if d < 0 {
		return "without end"
	}
	return fmt.Sprintf("%dh", (d+hour-1)/hour)
}

type acquireOption func(*lua.AcquireParams)

func acquire(who string, options ...acquireOption) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		p := lua.AcquireParams{
			LockKey: names.Lock, FenceKey: names.Fence, QueueKey: names.Queue, Acquisition: who,
			Lease: hour, Holds: 1, VoidAfter: never,
		}
		for _, o := range options {
			o(&p)
		}
		r, err := lua.Acquire(ctx, rdb, p)
		s := statusNames[r.Status] + showFence(r.Fence, r.Now)
		if r.Status == lua.Busy {
			s += strings.TrimRight(fmt.Sprintf(" by %s for %s %s", r.Holder, hours(r.Remaining), r.Description), " ")
		}
		return s, err
	}
}

func holds(n int) acquireOption           { return func(p *lua.AcquireParams) { p.Holds = n } }
func lease(d time.Duration) acquireOption { return func(p *lua.AcquireParams) { p.Lease = d } }
func voidAfter(at lua.Time) acquireOption { return func(p *lua.AcquireParams) { p.VoidAfter = at } }
func keepFor(d time.Duration) acquireOption {
	return func(p *lua.AcquireParams) { p.FenceRetention = d }
}
func about(description string) acquireOption {
	return func(p *lua.AcquireParams) { p.Description = description }
}

func TestAcquireGrantsOnlyWhatIsFreeOrItsOwn(t *testing.T) {
	heldByA := []string{"HSET @L a:1 1", "PEXPIRE @L 3600000", "SET @F 5000000000000000"}
	const stillA = "lock 1h a:1:1; fence forever 5000000000000000"
	runRows(t, []row{
		{"free, no fence yet", nil, acquire("a:1"), "granted clock", "lock 1h a:1:1; fence forever clock"},
		{"free, fence behind the clock", []string{"SET @F 7"}, acquire("a:1"), "granted clock", "lock 1h a:1:1; fence forever clock"},
		{"free, fence ahead of the clock", []string{"SET @F 5000000000000000"}, acquire("a:1"),
			"granted 5000000000000001", "lock 1h a:1:1; fence forever 5000000000000001"},
		{"free, fence kept for a time", nil, acquire("a:1", keepFor(3*hour)), "granted clock", "lock 1h a:1:1; fence 4h clock"},
		{"fence kept for a time, then for ever", []string{"SET @F 7 PX 9000000"}, acquire("a:1"),
			"granted clock", "lock 1h a:1:1; fence forever clock"},
		{"fence kept for longer by another client", []string{"SET @F 7 PX 18000000"}, acquire("a:1", keepFor(3*hour)),
			"granted clock", "lock 1h a:1:1; fence 5h clock"},
		{"fence kept for less by another client", []string{"SET @F 7 PX 3600000"}, acquire("a:1", keepFor(3*hour)),
			"granted clock", "lock 1h a:1:1; fence 4h clock"},
		{"fence kept for ever, as Redisson does, stays so", []string{"SET @F 7"}, acquire("a:1", keepFor(3*hour)),
			"granted clock", "lock 1h a:1:1; fence forever clock"},
		{"with a description", nil, acquire("a:1", about("host-1")), "granted clock",
			"lock 1h a:1:1 redlatch:about:host-1; fence forever clock"},
		{"a copy finds its own", heldByA, acquire("a:1"), "granted 5000000000000000", stillA},
		{"re-entry sets the number meant", heldByA, acquire("a:1", holds(3)), "granted 5000000000000000",
			"lock 1h a:1:3; fence forever 5000000000000000"},
		{"re-entry with a longer lease extends", heldByA, acquire("a:1", holds(2), lease(4*hour)), "granted 5000000000000000",
			"lock 4h a:1:2; fence forever 5000000000000000"},
		{"re-entry mends a lease that the clock has stretched", []string{"HSET @L a:1 1", "PEXPIRE @L 36000000", "SET @F 5000000000000000"},
			acquire("a:1", holds(2), lease(hour)), "granted 5000000000000000", "lock 1h a:1:2; fence forever 5000000000000000"},
		{"re-entry without a lease leaves it", []string{"HSET @L a:1 1", "PEXPIRE @L 36000000", "SET @F 5000000000000000"},
			acquire("a:1", holds(2), lease(0)), "granted 5000000000000000", "lock 10h a:1:2; fence forever 5000000000000000"},
		{"re-entry without a lease, which has no end", []string{"HSET @L a:1 1"},
			acquire("a:1", holds(2), lease(0)), "granted clock", "lock forever a:1:2; fence forever clock"},
		{"re-entry after the fence was lost", []string{"HSET @L a:1 1", "PEXPIRE @L 3600000"},
			acquire("a:1", holds(2)), "granted clock", "lock 1h a:1:2; fence forever clock"},
		{"re-entry keeps the description", []string{"HSET @L a:1 1 redlatch:about host-1", "PEXPIRE @L 3600000", "SET @F 5000000000000000"},
			acquire("a:1", holds(2), about("other")), "granted 5000000000000000",
			"lock 1h a:1:2 redlatch:about:host-1; fence forever 5000000000000000"},
		{"re-entry on a free lock", nil, acquire("a:1", holds(2)), "gone", ""},
		{"re-entry on another's lock", heldByA, acquire("b:1", holds(2)), "gone", stillA},
		{"another has it", heldByA, acquire("b:1"), "busy by a:1 for 1h", stillA},
		{"another has it and says who it is", []string{"HSET @L a:1 1 redlatch:about host-1", "PEXPIRE @L 3600000"},
			acquire("b:1"), "busy by a:1 for 1h host-1", "lock 1h a:1:1 redlatch:about:host-1"},
		{"another has it without end", []string{"HSET @L a:1 1"}, acquire("b:1"), "busy by a:1 for without end", "lock forever a:1:1"},
		{"a longer id that begins with the holder's", heldByA, acquire("a:12"), "busy by a:1 for 1h", stillA},
		{"a shorter id that begins the holder's", []string{"HSET @L a:12 1", "PEXPIRE @L 3600000"}, acquire("a:1"),
			"busy by a:12 for 1h", "lock 1h a:12:1"},
		{"too late for a free lock", nil, acquire("a:1", voidAfter(1)), "void", ""},
		{"too late for its own lock", heldByA, acquire("a:1", holds(2), voidAfter(1)), "void", stillA},
		{"free, and others stand in its queue", []string{"ZADD @Q 7 b:1/w"}, acquire("a:1"), "behind", "queue forever b:1=7"},
		{"its own, and others stand in its queue", with(heldByA, []string{"ZADD @Q 7 b:1/w"}), acquire("a:1", holds(2)),
			"granted 5000000000000000", "lock 1h a:1:2; fence forever 5000000000000000; queue forever b:1=7"},
		{"free, with a queue, and the fence cannot be counted up", []string{"SET @F x", "ZADD @Q 7 b:1/w"}, acquire("a:1"), "BADFENCE",
			"fence forever x; queue forever b:1=7"},
		{"queue of another type", []string{"SET @Q x"}, acquire("a:1"), "granted clock", "lock 1h a:1:1; fence forever clock; queue forever x"},
		{"lock of another type", []string{"SET @L x"}, acquire("a:1"), "WRONGTYPE", "lock forever x"},
		{"a read-write lock of Redisson", []string{"HSET @L mode write a:1:write 1"}, acquire("a:1"), "WRONGTYPE",
			"lock forever a:1:write:1 mode:write"},
		{"re-entry, and it is a read-write lock of Redisson now", []string{"HSET @L mode write a:1:write 1"}, acquire("b:1", holds(2)), "gone",
			"lock forever a:1:write:1 mode:write"},
		{"fence of another type", []string{"LPUSH @F x"}, acquire("a:1"), "WRONGTYPE", "fence forever list"},
		{"fence of another type, re-entry", []string{"HSET @L a:1 1", "LPUSH @F x"}, acquire("a:1", holds(2)),
			"WRONGTYPE", "lock forever a:1:1; fence forever list"},
		{"fence at 2^53 - 2", []string{"SET @F 9007199254740990"}, acquire("a:1"), "granted 9007199254740991",
			"lock 1h a:1:1; fence forever 9007199254740991"},
		{"fence at 2^53 - 1 cannot be counted up", []string{"SET @F 9007199254740991"}, acquire("a:1"), "BADFENCE",
			"fence forever 9007199254740991"},
		{"fence at 2^53 - 1 can be read", []string{"HSET @L a:1 1", "PEXPIRE @L 3600000", "SET @F 9007199254740991"}, acquire("a:1", holds(2)),
			"granted 9007199254740991", "lock 1h a:1:2; fence forever 9007199254740991"},
		{"fence beyond", []string{"SET @F 9223372036854775807"}, acquire("a:1"), "BADFENCE", "fence forever 9223372036854775807"},
		{"fence is no number", []string{"SET @F x"}, acquire("a:1"), "BADFENCE", "fence forever x"},
		{"fence is no number, re-entry", []string{"HSET @L a:1 1", "SET @F x"}, acquire("a:1", holds(2)), "BADFENCE",
			"lock forever a:1:1; fence forever x"},
		{"fence is not a number in words", []string{"SET @F nan"}, acquire("a:1"), "BADFENCE", "fence forever nan"},
		{"fence is infinite", []string{"SET @F inf"}, acquire("a:1"), "BADFENCE", "fence forever inf"},
		{"fence is negative", []string{"SET @F -1"}, acquire("a:1"), "BADFENCE", "fence forever -1"},
		{"fence is no whole number", []string{"SET @F 2.5"}, acquire("a:1"), "BADFENCE", "fence forever 2.5"},
		{"fence with a retention is no number", []string{"SET @F x"}, acquire("a:1", keepFor(3*hour)), "BADFENCE", "fence forever x"},
		{"fence with a retention is not a number in words", []string{"SET @F nan"}, acquire("a:1", keepFor(3*hour)), "BADFENCE", "fence forever nan"},
		{"fence with a retention is infinite", []string{"SET @F inf"}, acquire("a:1", keepFor(3*hour)), "BADFENCE", "fence forever inf"},
		{"fence with a retention is negative", []string{"SET @F -1"}, acquire("a:1", keepFor(3*hour)), "BADFENCE", "fence forever -1"},
		{"fence with a retention is no whole number", []string{"SET @F 2.5"}, acquire("a:1", keepFor(3*hour)), "BADFENCE", "fence forever 2.5"},
		{"fence with a retention is at 2^53 - 1", []string{"SET @F 9007199254740991"}, acquire("a:1", keepFor(3*hour)), "BADFENCE", "fence forever 9007199254740991"},
	})
}

func release(who string, left int) func(context.Context, lua.Redis) (string, error) {
	return releaseBy(who, left, never)
}

func releaseBy(who string, left int, end lua.Time) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		r, err := lua.Release(ctx, rdb, lua.ReleaseParams{
			LockKey: names.Lock, QueueKey: names.Queue, Channel: names.Channel, Acquisition: who, HoldsLeft: left, VoidAfter: end,
		})
		s := statusNames[r.Status]
		switch {
		case r.HasWaiters:
			s += ", behind a queue"
		case r.Status == lua.Freed:
			s += fmt.Sprintf(", received by %d", r.Receivers)
		}
		return s, err
	}
}

func TestReleaseFreesOnlyItsOwn(t *testing.T) {
	heldByA := []string{"HSET @L a:1 3 redlatch:about host-1", "PEXPIRE @L 3600000", "SET @F 7"}
	const stillA = "lock 1h a:1:3 redlatch:about:host-1; fence forever 7"
	runRows(t, []row{
		{"the last hold", heldByA, release("a:1", 0), "freed, received by 0", "fence forever 7"},
		{"an inner hold", heldByA, release("a:1", 2), "kept", "lock 1h a:1:2 redlatch:about:host-1; fence forever 7"},
		{"a copy of an inner release", heldByA, release("a:1", 3), "kept", stillA},
		{"an inner hold, past its end", heldByA, releaseBy("a:1", 2, 1), "void", stillA},
		{"an inner hold of another, past its end", heldByA, releaseBy("b:1", 2, 1), "gone", stillA},
		{"the last hold, past its end", heldByA, releaseBy("a:1", 0, 1), "freed, received by 0", "fence forever 7"},
		{"the last hold, and others stand in its queue", with(heldByA, []string{"ZADD @Q 7 b:1/w"}), release("a:1", 0), "freed, behind a queue",
			"fence forever 7; queue forever b:1=7"},
		{"the last hold, a queue of another type", with(heldByA, []string{"SET @Q x"}), release("a:1", 0), "freed, received by 0",
			"fence forever 7; queue forever x"},
		{"nobody's", []string{"SET @F 7"}, release("a:1", 0), "gone", "fence forever 7"},
		{"nobody's, holds left", nil, release("a:1", 1), "gone", ""},
		{"another's", heldByA, release("b:1", 0), "gone", stillA},
		{"another's, holds left", heldByA, release("b:1", 1), "gone", stillA},
		{"an id that begins with the holder's", heldByA, release("a:12", 0), "gone", stillA},
		{"lock of another type", []string{"SET @L x"}, release("a:1", 0), "gone", "lock forever x"},
		{"a read-write lock of Redisson", []string{"HSET @L mode write a:1:write 1"}, release("a:1", 0), "gone",
			"lock forever a:1:write:1 mode:write"},
		{"lock of another type, holds left", []string{"SET @L x"}, release("a:1", 1), "gone", "lock forever x"},
	})
}

func transfer(from, to string, options ...func(*lua.TransferParams)) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		p := lua.TransferParams{
			LockKey: names.Lock, FenceKey: names.Fence, From: from, To: to, Lease: 2 * hour, VoidAfter: never,
		}
		for _, o := range options {
			o(&p)
		}
		r, err := lua.Transfer(ctx, rdb, p)
		return statusNames[r.Status] + showFence(r.Fence, r.Now), err
	}
}

func TestTransferHandsOnOnlyItsOwn(t *testing.T) {
	keep5h := func(p *lua.TransferParams) { p.FenceRetention = 5 * hour }
	exported := func(description string) func(*lua.TransferParams) {
		return func(p *lua.TransferParams) { p.Exported, p.Description = true, description }
	}
	heldByA := []string{"HSET @L a:1 3 redlatch:about host-1", "PEXPIRE @L 3600000", "SET @F 5000000000000000"}
	const stillA = "lock 1h a:1:3 redlatch:about:host-1; fence forever 5000000000000000"
	runRows(t, []row{
		{"its own", heldByA, transfer("a:1", "a:2"), "granted 5000000000000001",
			"lock 2h a:2:1 redlatch:about:host-1; fence forever 5000000000000001"},
		{"its own, without a description", []string{"HSET @L a:1 1", "PEXPIRE @L 3600000", "SET @F 7"}, transfer("a:1", "a:2"),
			"granted clock", "lock 2h a:2:1; fence forever clock"},
		{"its own, a shorter lease", []string{"HSET @L a:1 1", "PEXPIRE @L 36000000"}, transfer("a:1", "a:2"),
			"granted clock", "lock 2h a:2:1; fence forever clock"},
		{"fence kept for a time", []string{"HSET @L a:1 1", "PEXPIRE @L 3600000", "SET @F 5000000000000000 PX 3600000"}, transfer("a:1", "a:2", keep5h),
			"granted 5000000000000001", "lock 2h a:2:1; fence 6h 5000000000000001"},
		{"fence kept for ever stays so", heldByA, transfer("a:1", "a:2", keep5h),
			"granted 5000000000000001", "lock 2h a:2:1 redlatch:about:host-1; fence forever 5000000000000001"},
		{"a copy", heldByA, transfer("a:0", "a:1"), "granted 5000000000000000",
			"lock 2h a:1:3 redlatch:about:host-1; fence forever 5000000000000000"},
		{"a copy, stretched by the clock", []string{"HSET @L a:1 1", "PEXPIRE @L 36000000", "SET @F 5000000000000000"}, transfer("a:0", "a:1"),
			"granted 5000000000000000", "lock 2h a:1:1; fence forever 5000000000000000"},
		{"a copy after the fence was lost", []string{"HSET @L a:1 2", "PEXPIRE @L 3600000"}, transfer("a:0", "a:1"),
			"granted clock", "lock 2h a:1:2; fence forever clock"},
		{"exported, by a client with a description", heldByA, transfer("a:1", "b:1", exported("host-2")), "granted 5000000000000001",
			"lock 2h b:1:1 redlatch:about:host-2; fence forever 5000000000000001"},
		{"exported, by a client without a description", heldByA, transfer("a:1", "b:1", exported("")), "granted 5000000000000001",
			"lock 2h b:1:1; fence forever 5000000000000001"},
		{"another's", heldByA, transfer("b:1", "b:2"), "gone", stillA},
		{"nobody's", nil, transfer("a:1", "a:2"), "gone", ""},
		{"an id that begins with the holder's", heldByA, transfer("a:12", "a:2"), "gone", stillA},
		{"too late", heldByA, transfer("a:1", "a:2", func(p *lua.TransferParams) { p.VoidAfter = 1 }), "void", stillA},
		{"lock of another type", []string{"SET @L x"}, transfer("a:1", "a:2"), "gone", "lock forever x"},
		{"a read-write lock of Redisson", []string{"HSET @L mode write a:1:write 1"}, transfer("a:1", "a:2"), "gone",
			"lock forever a:1:write:1 mode:write"},
		{"fence of another type", []string{"HSET @L a:1 1", "LPUSH @F x"}, transfer("a:1", "a:2"), "WRONGTYPE",
			"lock 2h a:1:1; fence forever list"},
		{"fence cannot be counted up", []string{"HSET @L a:1 1", "SET @F 9007199254740991"}, transfer("a:1", "a:2"), "BADFENCE",
			"lock 2h a:1:1; fence forever 9007199254740991"},
	})
}

func renew(who string, d time.Duration) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		r, err := lua.Renew(ctx, rdb, []lua.Renewal{{LockKey: names.Lock, Acquisition: who, Lease: d}})
		if err != nil {
			return "", err
		}
		return answerNames[r[0]], nil
	}
}

var answerNames = map[lua.RenewAnswer]string{
	lua.RenewGone: "gone", lua.RenewHeld: "held", lua.RenewDone: "extended", lua.RenewRefused: "refused",
}

func TestRenewExtendsOnlyItsOwn(t *testing.T) {
	heldByA := []string{"HSET @L a:1 2", "PEXPIRE @L 3600000"}
	runRows(t, []row{
		{"its own", heldByA, renew("a:1", 3*hour), "extended", "lock 3h a:1:2"},
		{"its own, stretched by the clock", []string{"HSET @L a:1 2", "PEXPIRE @L 36000000"}, renew("a:1", hour), "extended", "lock 1h a:1:2"},
		{"its own, an end where there was none", []string{"HSET @L a:1 2"}, renew("a:1", 3*hour), "extended", "lock 3h a:1:2"},
		{"its own, only looking", heldByA, renew("a:1", 0), "held", "lock 1h a:1:2"},
		{"another's", heldByA, renew("b:1", 3*hour), "gone", "lock 1h a:1:2"},
		{"another's, only looking", heldByA, renew("b:1", 0), "gone", "lock 1h a:1:2"},
		{"an id that begins with the holder's", heldByA, renew("a:12", 3*hour), "gone", "lock 1h a:1:2"},
		{"nobody's: never created", nil, renew("a:1", 3*hour), "gone", ""},
		{"a key of another type is nobody's lock", []string{"SET @L x"}, renew("a:1", 3*hour), "gone", "lock forever x"},
		{"a read-write lock of Redisson", []string{"HSET @L mode write a:1:write 1"}, renew("a:1", 3*hour), "gone",
			"lock forever a:1:write:1 mode:write"},
	})
}

func keepFences(d time.Duration) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		kept, err := lua.KeepFences(ctx, rdb, []any{names.Fence}, d)
		return fmt.Sprint(kept), err
	}
}

func TestKeepFencesOnlyExtendsTheirLives(t *testing.T) {
	const fence = "SET @F 7 PX "
	runRows(t, []row{
		{"too short", []string{fence + "3600000"}, keepFences(3 * hour), "1", "fence 4h 7"},
		{"long enough", []string{fence + "14400000"}, keepFences(3 * hour), "0", "fence 4h 7"},
		{"without an end", []string{"SET @F 7"}, keepFences(3 * hour), "0", "fence forever 7"},
		{"lost: never created", []string{"HSET @L a:1 1"}, keepFences(3 * hour), "0", "lock forever a:1:1"},
	})
}

func TestKeepFencesTakesManyOfThem(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		prepare(t, b.rdb, "SET {x}1 7 PX 3600000", "SET {x}3 9 PX 3600000")
		kept, err := lua.KeepFences(t.Context(), b.rdb, []any{"{x}1", "{x}2", "{x}3"}, 20*time.Minute)
		require.NoError(t, err)
		require.Zero(t, kept)
		kept, err = lua.KeepFences(t.Context(), b.rdb, []any{"{x}1", "{x}2", "{x}3"}, 2*hour)
		require.NoError(t, err)
		require.Equal(t, 2, kept)
		for _, k := range []string{"{x}1", "{x}3"} {
			require.Equal(t, "3h", hours(b.rdb.PTTL(t.Context(), k).Val()), k)
		}
	})
}

func keepLock(who string, number int, d time.Duration) func(context.Context, lua.Redis) (string, error) {
	return keepUntil(never, who, number, d)
}

func keepUntil(voidAfter lua.Time, who string, number int, d time.Duration) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		r, err := lua.Keep(ctx, rdb, lua.KeepParams{
			LockKey: names.Lock, Acquisition: who, Kept: "kept-x", Number: number, For: d, VoidAfter: voidAfter,
		})
		return statusNames[r.Status], err
	}
}

// Redis keeps a lock under an id of its own, so nothing that was sent for the acquisition changes
// it.
func TestKeepEndsOnlyItsOwn(t *testing.T) {
	heldByA := []string{"HSET @L a:1 2 redlatch:about me", "PEXPIRE @L 7200000", "SET @F 7"}
	keptTwice := []string{"HSET @L kept-x:2 1 redlatch:about me", "PEXPIRE @L 3600000", "SET @F 7"}
	const kept, held = "lock 1h kept-x:2:1 redlatch:about:me; fence forever 7", "lock 2h a:1:2 redlatch:about:me; fence forever 7"
	runRows(t, []row{
		{"its own", heldByA, keepLock("a:1", 1, 3*hour), "kept", "lock 3h kept-x:1:1 redlatch:about:me; fence forever 7"},
		{"its own, for less than the lease", heldByA, keepLock("a:1", 12, hour), "kept", "lock 1h kept-x:12:1 redlatch:about:me; fence forever 7"},
		{"a copy", keptTwice, keepLock("a:1", 2, 3*hour), "kept", kept},
		{"a copy of an earlier call", keptTwice, keepLock("a:1", 1, 3*hour), "gone", kept},
		{"a later call", keptTwice, keepLock("a:1", 10, 3*hour), "kept", "lock 3h kept-x:10:1 redlatch:about:me; fence forever 7"},
		{"another's", heldByA, keepLock("b:1", 1, 3*hour), "gone", held},
		{"kept for another", []string{"HSET @L kept-y:1 1", "PEXPIRE @L 3600000"}, keepLock("a:1", 2, 3*hour), "gone", "lock 1h kept-y:1:1"},
		{"an id that begins with the holder's", heldByA, keepLock("a:12", 1, 3*hour), "gone", held},
		{"nobody's: never created", nil, keepLock("a:1", 1, 3*hour), "gone", ""},
		{"too late", heldByA, keepUntil(1, "a:1", 1, 3*hour), "void", held},
		{"a key of another type is nobody's lock", []string{"SET @L x"}, keepLock("a:1", 1, 3*hour), "gone", "lock forever x"},
		{"a read-write lock of Redisson", []string{"HSET @L mode write a:1:write 1"}, keepLock("a:1", 1, 3*hour), "gone",
			"lock forever a:1:write:1 mode:write"},

		{"then, a renewal", keptTwice, renew("a:1", 3*hour), "gone", kept},
		{"then, a re-entry", keptTwice, acquire("a:1", holds(2)), "gone", kept},
		{"then, an inner release", keptTwice, release("a:1", 1), "gone", kept},
		{"then, a release", keptTwice, release("a:1", 0), "gone", kept},
		{"then, a handoff", keptTwice, transfer("a:1", "a:2"), "gone", kept},
	})
}

func TestRenewAnswersForEachLockOfABatch(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx := t.Context()
		prepare(t, b.rdb, "HSET {x}1 a:1 1", "HSET {x}2 b:1 1", "SET {x}3 x", "HSET {x}5 a:5 1", "PEXPIRE {x}1 1000000",
			"PEXPIRE {x}2 1000000", "PEXPIRE {x}5 1000000")
		batch := []lua.Renewal{
			{LockKey: "{x}1", Acquisition: "a:1", Lease: 2 * hour},
			{LockKey: "{x}2", Acquisition: "a:2", Lease: 2 * hour},
			{LockKey: "{x}3", Acquisition: "a:3", Lease: 2 * hour},
			{LockKey: "{x}4", Acquisition: "a:4", Lease: 2 * hour},
			{LockKey: "{x}5", Acquisition: "a:5"},
		}
		answers, err := lua.Renew(ctx, b.rdb, batch)
		require.NoError(t, err)
		require.Equal(t, []lua.RenewAnswer{lua.RenewDone, lua.RenewGone, lua.RenewGone, lua.RenewGone, lua.RenewHeld}, answers)
		for k, class := range map[string]string{"{x}1": "2h", "{x}2": "1h", "{x}5": "1h"} {
			require.Equal(t, class, hours(b.rdb.PTTL(ctx, k).Val()), k)
		}
		require.EqualValues(t, 4, b.rdb.DBSize(ctx).Val())

		answers, err = lua.Renew(ctx, b.rdb, nil)
		require.NoError(t, err)
		require.Empty(t, answers)
	})
}

func TestRenewTakesThousandsOfLocks(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		const n = 5000
		batch := make([]lua.Renewal, n)
		pipe := b.rdb.Pipeline()
		for i := range batch {
			batch[i] = lua.Renewal{LockKey: fmt.Sprintf("{x}%d", i), Acquisition: fmt.Sprintf("a:%d", i), Lease: hour}
			if i%2 == 0 {
				pipe.HSet(t.Context(), batch[i].LockKey, batch[i].Acquisition, 1)
			}
		}
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		answers, err := lua.Renew(t.Context(), b.rdb, batch)
		require.NoError(t, err)
		for i, a := range answers {
			require.Equal(t, i%2 == 0, a == lua.RenewDone, i)
		}
	})
}

func force(expected string) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		r, err := lua.ForceRelease(ctx, rdb, lua.ForceReleaseParams{
			LockKey: names.Lock, QueueKey: names.Queue, Channel: names.Channel, Expected: expected,
		})
		s := statusNames[r.Status] + " " + r.Holder
		if r.HasWaiters {
			s += ", behind a queue"
		}
		return strings.TrimSpace(s), err
	}
}

func TestForceReleaseEndsOnlyTheExpectedHolder(t *testing.T) {
	heldByA := []string{"HSET @L a:1 3 redlatch:about host-1", "PEXPIRE @L 3600000", "SET @F 7"}
	runRows(t, []row{
		{"whoever has it", heldByA, force(""), "freed a:1", "fence forever 7"},
		{"the expected holder", heldByA, force("a:1"), "freed a:1", "fence forever 7"},
		{"the expected holder, and others stand in its queue", with(heldByA, []string{"ZADD @Q 7 b:1/w"}), force("a:1"), "freed a:1, behind a queue",
			"fence forever 7; queue forever b:1=7"},
		{"another than expected", heldByA, force("b:1"), "busy a:1", "lock 1h a:1:3 redlatch:about:host-1; fence forever 7"},
		{"nobody", []string{"SET @F 7"}, force(""), "nobody", "fence forever 7"},
		{"lock of another type", []string{"SET @L x"}, force(""), "WRONGTYPE", "lock forever x"},
		{"a read-write lock of Redisson", []string{"HSET @L mode write a:1:write 1"}, force(""), "WRONGTYPE",
			"lock forever a:1:write:1 mode:write"},
	})
}

func inspect(ctx context.Context, rdb lua.Redis) (string, error) {
	r, err := lua.Inspect(ctx, rdb, names.Lock, names.Fence)
	return fmt.Sprintf("%q x%d %s %q fence%s", r.Holder, r.Holds, hours(r.Remaining), r.Description, showFence(r.Fence, 0)), err
}

func TestInspectSeesAndChangesNothing(t *testing.T) {
	runRows(t, []row{
		{"nothing", nil, inspect, `"" x0 without end "" fence`, ""},
		{"a lock", []string{"HSET @L a:1 3 redlatch:about host-1", "PEXPIRE @L 3600000", "SET @F 7"}, inspect,
			`"a:1" x3 1h "host-1" fence 7`, "lock 1h a:1:3 redlatch:about:host-1; fence forever 7"},
		{"only a fence, the largest", []string{"SET @F 9007199254740993"}, inspect,
			`"" x0 without end "" fence 9007199254740993`, "fence forever 9007199254740993"},
		{"a lock without end", []string{"HSET @L a:1 1"}, inspect, `"a:1" x1 without end "" fence`, "lock forever a:1:1"},
		{"a fence that is no number", []string{"SET @F x"}, func(ctx context.Context, rdb lua.Redis) (string, error) {
			_, err := lua.Inspect(ctx, rdb, names.Lock, names.Fence)
			return "", err
		}, "REPLY", "fence forever x"},
		{"lock of another type", []string{"SET @L x"}, inspect, "WRONGTYPE", "lock forever x"},
		{"a read-write lock of Redisson", []string{"HSET @L mode write a:1:write 1"}, inspect, "WRONGTYPE",
			"lock forever a:1:write:1 mode:write"},
		{"fence of another type", []string{"LPUSH @F x"}, inspect, "WRONGTYPE", "fence forever list"},
	})
}

func TestSubscribersAreNotifiedWhenTheLockIsFreeAndOnlyThen(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx := t.Context()
		sub := b.rdb.Subscribe(ctx, names.Channel)
		defer sub.Close()
		_, err := sub.Receive(ctx)
		require.NoError(t, err)
		run := func(call func(context.Context, lua.Redis) (string, error), want string) {
			t.Helper()
			got, err := call(ctx, b.rdb)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		prepare(t, b.rdb, "SET @F 5000000000000000")
		run(acquire("a:1"), "granted 5000000000000001")
		run(acquire("a:1", holds(2)), "granted 5000000000000001")
		run(release("a:1", 1), "kept")
		run(transfer("a:1", "a:2"), "granted 5000000000000002")
		run(renew("a:2", hour), "extended")
		run(release("a:1", 0), "gone")
		run(force("b:1"), "busy a:2")
		run(release("a:2", 0), "freed, received by 1")
		run(release("a:2", 0), "gone")
		run(acquire("b:1"), "granted 5000000000000003")
		run(force(""), "freed b:1")
		run(force(""), "nobody")
		require.NoError(t, b.rdb.Publish(ctx, names.Channel, "end").Err())
		var received []string
		for len(received) == 0 || received[len(received)-1] != "end" {
			m, err := sub.ReceiveMessage(ctx)
			require.NoError(t, err)
			received = append(received, m.Payload)
		}
		require.Equal(t, []string{"0", "0", "end"}, received)
	})
}

func TestHostileNamesAndDescriptionsAreOnlyData(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		for _, name := range []string{"a\x00b", "{tag}x", "täg 🔒", "x\r\n$3\r\nDEL", "'\"; return 1 --", strings.Repeat("n", 512)} {
			lock, fence, channel := name, "fence:"+name, "channel:"+name
			who, what := "owner\x00\r\n:1", "about\x00\r\n🔒"
			got, err := lua.Acquire(t.Context(), b.rdb, lua.AcquireParams{
				LockKey: lock, FenceKey: fence, Acquisition: who, Lease: hour, Holds: 1, VoidAfter: never, Description: what,
			})
			require.NoError(t, err)
			require.Equal(t, lua.Granted, got.Status)
			busy, err := lua.Acquire(t.Context(), b.rdb, lua.AcquireParams{
				LockKey: lock, FenceKey: fence, Acquisition: "other", Lease: hour, Holds: 1, VoidAfter: never,
			})
			require.NoError(t, err)
			require.Equal(t, who, busy.Holder)
			require.Equal(t, what, busy.Description)
			in, err := lua.Inspect(t.Context(), b.rdb, lock, fence)
			require.NoError(t, err)
			require.Equal(t, got.Fence, in.Fence)
			freed, err := lua.Release(t.Context(), b.rdb, lua.ReleaseParams{LockKey: lock, Channel: channel, Acquisition: who})
			require.NoError(t, err)
			require.Equal(t, lua.Freed, freed.Status)
		}
	})
}

// The server's clock is what counts, and every grant has it.
func TestEveryAnswerOfAGrantHasTheServersClock(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx := t.Context()
		between := func(ask func() (lua.Time, error)) {
			t.Helper()
			before := serverTime(t, b.rdb)
			now, err := ask()
			require.NoError(t, err)
			require.GreaterOrEqual(t, now, before)
			require.LessOrEqual(t, now, serverTime(t, b.rdb))
		}
		take := func(who string, holds int, end lua.Time) func() (lua.Time, error) {
			return func() (lua.Time, error) {
				r, err := lua.Acquire(ctx, b.rdb, lua.AcquireParams{LockKey: names.Lock, FenceKey: names.Fence,
					Acquisition: who, Lease: hour, Holds: holds, VoidAfter: end})
				return r.Now, err
			}
		}
		hand := func(from, to string, end lua.Time) func() (lua.Time, error) {
			return func() (lua.Time, error) {
				r, err := lua.Transfer(ctx, b.rdb, lua.TransferParams{LockKey: names.Lock, FenceKey: names.Fence,
					From: from, To: to, Lease: hour, VoidAfter: end})
				return r.Now, err
			}
		}
		between(take("a:1", 1, never)) // granted
		between(take("b:1", 1, never)) // busy
		between(take("b:1", 2, never)) // gone
		between(take("b:1", 1, 1))     // void
		between(hand("a:1", "a:2", never))
		between(hand("b:1", "b:2", never))
		between(hand("a:2", "a:3", 1))
		between(func() (lua.Time, error) {
			r, err := lua.Inspect(ctx, b.rdb, names.Lock, names.Fence)
			return r.Now, err
		})
	})
}

func serverTime(t require.TestingT, rdb *redis.Client) lua.Time {
	at, err := rdb.Time(context.Background()).Result()
	require.NoError(t, err)
	return lua.Time(at.UnixMicro())
}

// Redisson listens to the sharded channel of a lock in a cluster. Redis before 7 has no such
// channels.
func TestAReleaseInAClusterIsPublishedInTheShardToo(t *testing.T) {
	s := startServer(t)
	rdb := dial(t, s.addr, 3, nil)
	release := func() {
		t.Helper()
		_, err := lua.Acquire(t.Context(), rdb, lua.AcquireParams{LockKey: names.Lock, FenceKey: names.Fence, QueueKey: names.Queue,
			Acquisition: "a:1", Lease: hour, Holds: 1, VoidAfter: never, FenceRetention: hour})
		require.NoError(t, err)
		got, err := lua.Release(t.Context(), rdb, lua.ReleaseParams{LockKey: names.Lock, QueueKey: names.Queue,
			Channel: names.Channel, Acquisition: "a:1", Cluster: true})
		require.NoError(t, err)
		require.Equal(t, lua.Freed, got.Status)
	}
	if s.version < 700 {
		release()
		return
	}
	sub := rdb.SSubscribe(t.Context(), names.Channel)
	defer sub.Close()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	release()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a lost message would last for ever
	defer cancel()
	m, err := sub.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Equal(t, "00", m.Payload)
}

func TestAnEchoReachesItsChannelAndChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		sub := b.rdb.Subscribe(t.Context(), "echoes")
		defer sub.Close()
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
		receivers, err := lua.Echo(t.Context(), b.rdb, "k", "echoes", "text")
		require.NoError(t, err)
		require.EqualValues(t, 1, receivers)
		m, err := sub.ReceiveMessage(t.Context())
		require.NoError(t, err)
		require.Equal(t, "text", m.Payload)
		require.Empty(t, keyspace(t, b.rdb))
	})
}
