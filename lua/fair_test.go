package lua_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/lua"
)

var fairKeys = lua.FairKeys{Lock: names.Lock, Fence: names.Fence, Queue: names.Queue, Alive: names.Alive}

func waiter(who string) lua.Waiter {
	return lua.Waiter{Acquisition: who, Units: 1, Heartbeat: hour, Lease: 4 * hour, Description: "host-1"}
}

func showPlace(p lua.QueueState) string {
	s := fmt.Sprintf("%d of %d", p.Position, p.Length)
	if p.Holder == "" {
		if p.Remaining != 0 {
			s += ", ask in " + p.Remaining.String()
		}
		return s + ", free"
	}
	return s + strings.TrimRight(fmt.Sprintf(", held by %s for %s%s %s", p.Holder, hours(p.Remaining), showFence(p.Fence, 0), p.Description), " ")
}

type joinOption func(*lua.JoinParams)

func join(who string, options ...joinOption) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		p := lua.JoinParams{Keys: fairKeys, Waiter: waiter(who), VoidAfter: never, ClientChannels: key.ClientPrefix}
		for _, o := range options {
			o(&p)
		}
		r, err := lua.Join(ctx, rdb, p)
		switch r.Status {
		case lua.Granted:
			return "granted" + showFence(r.Fence, r.Now), err
		case lua.Queued, lua.Busy:
			return statusNames[r.Status] + " " + showPlace(r.QueueState), err
		}
		return statusNames[r.Status], err
	}
}

func tryOnly(p *lua.JoinParams)      { p.Try = true }
func tooLate(p *lua.JoinParams)      { p.VoidAfter = 1 }
func withTicket(n int64) joinOption  { return func(p *lua.JoinParams) { p.Ticket = n } }
func aboutNothing(p *lua.JoinParams) { p.Waiter.Description = "" }
func keepFence3h(p *lua.JoinParams)  { p.FenceRetention = 3 * hour }

func beat(who ...string) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		var batch []lua.Heartbeat
		for _, w := range who {
			batch = append(batch, lua.Heartbeat{Keys: fairKeys, Waiter: waiter(w)})
		}
		r, err := lua.Heartbeats(ctx, rdb, 0, key.ClientPrefix, true, batch)
		var all []string
		for _, a := range r {
			switch a.Status {
			case lua.Granted:
				all = append(all, "granted"+showFence(a.Fence, lua.Time(1e15)))
			case lua.Queued:
				all = append(all, showPlace(a.QueueState))
			default:
				all = append(all, statusNames[a.Status])
			}
		}
		return strings.Join(all, "; "), err
	}
}

func leave(who string) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		r, err := lua.ReleaseFair(ctx, rdb, lua.ReleaseFairParams{Keys: fairKeys, Waiter: waiter(who), Channel: names.Channel, ClientChannels: key.ClientPrefix})
		s := fmt.Sprintf("%s, received by %d", statusNames[r.Status], r.Receivers)
		if r.More {
			s += ", more"
		}
		return s, err
	}
}

func forceFair(expected string) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		r, err := lua.ForceReleaseFair(ctx, rdb, lua.ForceReleaseFairParams{
			Keys: fairKeys, Expected: expected, Channel: names.Channel, ClientChannels: key.ClientPrefix,
		})
		s := strings.TrimSpace(statusNames[r.Status] + " " + r.Holder)
		if r.More {
			s += ", more"
		}
		return s, err
	}
}

func removeWaiter(who string) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		did, err := lua.Remove(ctx, rdb, names.Queue, names.Alive, waiter(who), key.ClientPrefix)
		return fmt.Sprint(did), err
	}
}

func find(who, behind string, most int) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		r, err := lua.Find(ctx, rdb, names.Queue, names.Alive, who, behind, most)
		s := statusNames[r.Status]
		if r.Waiter.Acquisition != "" {
			s += fmt.Sprintf(" %s x%d %v %s", r.Waiter.Acquisition, r.Waiter.Units, r.Waiter.Heartbeat, r.Waiter.Description)
		}
		if r.After != "" {
			s += ", go on behind " + r.After
		}
		return s, err
	}
}

func queue(skip, show int) func(context.Context, lua.Redis) (string, error) {
	return queueBehind(skip, "", show)
}

func queueBehind(skip int, behind string, show int) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		r, err := lua.Queue(ctx, rdb, names.Queue, names.Alive, skip, behind, show)
		s := fmt.Sprintf("%d:", r.Length)
		for _, w := range r.Waiters {
			s += fmt.Sprintf(" %s x%d %v %s", w.Acquisition, w.Units, w.Heartbeat, w.Description)
			if w.HeartbeatLeft > 0 {
				s += " " + hours(w.HeartbeatLeft)
			} else {
				s += " dead"
			}
		}
		return s, err
	}
}

// The fence of the next grant is 5000000000000001; a has the lock; b, then c wait.
var (
	heldFair = []string{"HSET @L a:1 1 redlatch:about host-1", "PEXPIRE @L 3600000", "SET @F 5000000000000000"}
	// Joined by hand, line by line: what join itself writes is tested below.
	bcQueued = []string{"ZADD @Q 5 b:1/w 7 c:1/w", "ZADD @A +1h b:1/w +1h c:1/w", "PEXPIRE @Q 7200000", "PEXPIRE @A 7200000"}
)

const (
	stillHeld  = "lock 1h a:1:1 redlatch:about:host-1; fence forever 5000000000000000"
	seededOnly = "fence forever 5000000000000000"
	bcWait     = "; queue 2h b:1=5 c:1=7; alive 2h b:1=1h c:1=1h"
)

func with(lists ...[]string) (all []string) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func TestJoinGrantsOnlyTheFirstInTheQueue(t *testing.T) {
	free := []string{"SET @F 5000000000000000"}
	runRows(t, []row{
		{"free, nobody waits", nil, join("a:1"), "granted clock", "lock 4h a:1:1 redlatch:about:host-1; fence forever clock"},
		{"free, nothing to say of itself", nil, join("a:1", aboutNothing), "granted clock", "lock 4h a:1:1; fence forever clock"},
		{"free, fence kept for a time", nil, join("a:1", keepFence3h), "granted clock", "lock 4h a:1:1 redlatch:about:host-1; fence 4h clock"},
		{"free, a try", free, join("a:1", tryOnly), "granted 5000000000000001", "lock 4h a:1:1 redlatch:about:host-1; fence forever 5000000000000001"},
		{"a copy finds its own", heldFair, join("a:1"), "granted 5000000000000000", "lock 4h a:1:1 redlatch:about:host-1; fence forever 5000000000000000"},
		{"a copy after the fence was lost", []string{"HSET @L a:1 1"}, join("a:1"), "granted clock", "lock 4h a:1:1; fence forever clock"},
		{"held", heldFair, join("b:1"), "queued 1 of 1, held by a:1 for 1h 5000000000000000 host-1",
			stillHeld + "; queue 11h b:1=clock; alive 11h b:1=1h"},
		{"held without an end", []string{"HSET @L a:1 1"}, join("b:1"), "queued 1 of 1, held by a:1 for without end",
			"lock forever a:1:1; queue 11h b:1=clock; alive 11h b:1=1h"},
		{"held, others wait", with(heldFair, bcQueued), join("d:1"), "queued 3 of 3, held by a:1 for 1h 5000000000000000 host-1",
			stillHeld + "; queue 11h b:1=5 c:1=7 d:1=clock; alive 11h b:1=1h c:1=1h d:1=1h"},
		{"held, the last has a ticket ahead of the clock", with(heldFair, []string{"ZADD @Q 5000000000000009 b:1/w", "ZADD @A +1h b:1/w"}),
			join("d:1"), "queued 2 of 2, held by a:1 for 1h 5000000000000000 host-1",
			stillHeld + "; queue 11h b:1=5000000000000009 d:1=5000000000000010; alive 11h b:1=1h d:1=1h"},
		{"held, with a ticket from before", with(heldFair, bcQueued), join("d:1", withTicket(6)), "queued 2 of 3, held by a:1 for 1h 5000000000000000 host-1",
			stillHeld + "; queue 11h b:1=5 d:1=6 c:1=7; alive 11h b:1=1h c:1=1h d:1=1h"},
		{"a copy keeps its place", with(heldFair, bcQueued), join("b:1"), "queued 1 of 2, held by a:1 for 1h 5000000000000000 host-1",
			stillHeld + "; queue 11h b:1=5 c:1=7; alive 11h b:1=1h c:1=1h"},
		{"a try of a held lock", heldFair, join("b:1", tryOnly), "busy 1 of 0, held by a:1 for 1h 5000000000000000 host-1", stillHeld},
		{"a try behind others", with(heldFair, bcQueued), join("d:1", tryOnly), "busy 3 of 2, held by a:1 for 1h 5000000000000000 host-1", stillHeld + bcWait},
		{"free, others wait: it goes to the first of them", with(free, bcQueued), join("d:1"), "queued 2 of 2, held by b:1 for 1h 5000000000000001 host-1",
			"lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 11h c:1=7 d:1=clock; alive 11h c:1=1h d:1=1h"},
		{"free, others wait: a try never jumps the queue", with(free, bcQueued), join("d:1", tryOnly), "busy 2 of 1, held by b:1 for 1h 5000000000000001 host-1",
			"lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 2h c:1=7; alive 2h c:1=1h"},
		{"free, and it is the first", with(free, bcQueued), join("b:1"), "granted 5000000000000001",
			"lock 4h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 2h c:1=7; alive 2h c:1=1h"},
		{"free, only the dead before it, who had their grace", with(free, []string{"ZADD @Q 5 b:1/w 7 c:1/w", "ZADD @A -2h b:1/w -1h c:1/w -0.5h grace"}),
			join("d:1"), "granted 5000000000000001", "lock 4h d:1:1 redlatch:about:host-1; fence forever 5000000000000001"},
		{"free, nobody sent a heartbeat for long: all get a grace", with(free, []string{"ZADD @Q 5 b:1/w 7 c:1/w", "ZADD @A -2h b:1/w -1h c:1/w"}),
			join("d:1"), "queued 2 of 2, held by b:1 for 1h 5000000000000001 host-1",
			"lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 11h c:1=7 d:1=clock; alive 11h c:1=over d:1=1h grace=1h"},
		{"free, a dead one before a living one", with(free, []string{"ZADD @Q 5 b:1/w 7 c:1/w", "ZADD @A -2h b:1/w +1h c:1/w"}), join("d:1"),
			"queued 1 of 1, held by c:1 for 1h 5000000000000001 host-1",
			"lock 1h c:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 11h d:1=clock; alive 11h d:1=1h"},
		{"free, the first has lost its heartbeat", with(free, []string{"ZADD @Q 5 b:1/w 7 c:1/w", "ZADD @A +1h c:1/w"}), join("d:1"),
			"queued 1 of 1, held by c:1 for 1h 5000000000000001 host-1",
			"lock 1h c:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 11h d:1=clock; alive 11h d:1=1h"},
		{"free, the clock was set back: a grant lasts a heartbeat at most", with(free, []string{"ZADD @Q 5 b:1/w", "ZADD @A +9h b:1/w"}), join("d:1"),
			"queued 1 of 1, held by b:1 for 1h 5000000000000001 host-1",
			"lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 11h d:1=clock; alive 11h d:1=1h"},
		{"free, the first has a lease shorter than its heartbeat", with(free, []string{"ZADD @Q 5 b:1/s", "ZADD @A +9h b:1/s"}), join("d:1"),
			"queued 1 of 1, held by b:1 for 2h 5000000000000001 host-1",
			"lock 2h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 11h d:1=clock; alive 11h d:1=1h"},
		{"too late", nil, join("a:1", tooLate), "void", ""},
		{"too late, held", with(heldFair, bcQueued), join("d:1", tooLate), "void", stillHeld + bcWait},
		{"lock of another type", []string{"SET @L x"}, join("a:1"), "WRONGTYPE", "lock forever x"},
		{"a read-write lock of Redisson", []string{"HSET @L mode write a:1:write 1"}, join("a:1"), "WRONGTYPE", "lock forever a:1:write:1 mode:write"},
		{"fence of another type", []string{"LPUSH @F x"}, join("a:1"), "WRONGTYPE", "fence forever list"},
		{"queue of another type", []string{"SET @Q x"}, join("a:1"), "WRONGTYPE", "queue forever x"},
		{"heartbeats of another type", []string{"SET @A x"}, join("a:1"), "WRONGTYPE", "alive forever x"},
		{"fence that cannot be counted up", []string{"SET @F 9007199254740991"}, join("a:1"), "BADFENCE", "fence forever 9007199254740991"},
		{"fence that cannot be counted up, others wait", with([]string{"SET @F 9007199254740991"}, bcQueued), join("d:1"), "BADFENCE",
			"fence forever 9007199254740991" + bcWait},
		{"fence is no number", []string{"SET @F x"}, join("a:1"), "BADFENCE", "fence forever x"},
		{"fence is no number, held", []string{"HSET @L a:1 1", "SET @F x"}, join("b:1"), "BADFENCE", "lock forever a:1:1; fence forever x"},
		{"fence is no number, and it has the lock", []string{"HSET @L a:1 1", "SET @F x"}, join("a:1"), "BADFENCE", "lock forever a:1:1; fence forever x"},
		{"held, heartbeats of another type", with(heldFair, []string{"SET @A x"}), join("b:1"), "WRONGTYPE", stillHeld + "; alive forever x"},
		{"held, queue of another type", with(heldFair, []string{"SET @Q x"}), join("b:1"), "WRONGTYPE", stillHeld + "; queue forever x"},
		{"a description without a holder is nobody's", with(free, []string{"HSET @L redlatch:about host-1"}), join("a:1"), "granted 5000000000000001",
			"lock 4h a:1:1 redlatch:about:host-1; fence forever 5000000000000001"},
	})
}

func TestAHeartbeatRefreshesAndReportsThePlace(t *testing.T) {
	runRows(t, []row{
		{"queued", with(heldFair, []string{"ZADD @Q 5 b:1/w 7 c:1/w", "ZADD @A +0.8h b:1/w +1h c:1/w"}), beat("b:1"),
			"1 of 2, held by a:1 for 1h 5000000000000000 host-1", stillHeld + "; queue 11h b:1=5 c:1=7; alive 11h b:1=1h c:1=1h"},
		{"two of one queue", with(heldFair, bcQueued), beat("c:1", "b:1"),
			"2 of 2, held by a:1 for 1h 5000000000000000 host-1; 1 of 2, held by a:1 for 1h 5000000000000000 host-1",
			stillHeld + "; queue 11h b:1=5 c:1=7; alive 11h b:1=1h c:1=1h"},
		{"granted, and the message was lost", heldFair, beat("a:1"), "granted 5000000000000000",
			"lock 4h a:1:1 redlatch:about:host-1; fence forever 5000000000000000"},
		{"granted, stretched by the clock", []string{"HSET @L a:1 1", "PEXPIRE @L 36000000", "SET @F 5000000000000000"}, beat("a:1"),
			"granted 5000000000000000", "lock 4h a:1:1; fence forever 5000000000000000"},
		{"neither: never queued again", heldFair, beat("b:1"), "gone", stillHeld},
		{"neither, nobody has it: never granted", nil, beat("b:1"), "gone", ""},
		{"an id that begins with the holder's", heldFair, beat("a:12"), "gone", stillHeld},
		{"free: granted to the first, which is it", with([]string{"SET @F 5000000000000000"}, bcQueued), beat("b:1"), "granted 5000000000000001",
			"lock 4h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 11h c:1=7; alive 11h c:1=1h"},
		{"free: granted to the first, which is another", with([]string{"SET @F 5000000000000000"}, bcQueued), beat("c:1"),
			"1 of 1, held by b:1 for 1h 5000000000000001 host-1",
			"lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 11h c:1=7; alive 11h c:1=1h"},
		{"late, and not buried yet", with(heldFair, []string{"ZADD @Q 5 b:1/w 7 c:1/w", "ZADD @A -1h b:1/w +1h c:1/w"}), beat("b:1"),
			"1 of 2, held by a:1 for 1h 5000000000000000 host-1", stillHeld + "; queue 11h b:1=5 c:1=7; alive 11h b:1=1h c:1=1h"},
		{"buries the dead", with(heldFair, []string{"ZADD @Q 5 b:1/w 7 c:1/w 8 d:1/w", "ZADD @A -1h b:1/w +1h c:1/w -2h d:1/w"}), beat("c:1"),
			"1 of 1, held by a:1 for 1h 5000000000000000 host-1", stillHeld + "; queue 11h c:1=7; alive 11h c:1=1h"},
		{"late, behind another's beat in the same batch", with(heldFair, []string{"ZADD @Q 5 b:1/w 7 c:1/w", "ZADD @A -1h b:1/w +1h c:1/w"}), beat("c:1", "b:1"),
			"2 of 2, held by a:1 for 1h 5000000000000000 host-1; 1 of 2, held by a:1 for 1h 5000000000000000 host-1",
			stillHeld + "; queue 11h b:1=5 c:1=7; alive 11h b:1=1h c:1=1h"},
		{"late likewise, and the lock is free: it is its turn", []string{"SET @F 5000000000000000", "ZADD @Q 5 b:1/w 7 c:1/w", "ZADD @A -1h b:1/w +1h c:1/w"},
			beat("c:1", "b:1"), "1 of 1, held by b:1 for 1h 5000000000000001 host-1; granted 5000000000000001",
			"lock 4h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 11h c:1=7; alive 11h c:1=1h"},
		{"nobody sent a heartbeat for long: all get a grace", with(heldFair, []string{"ZADD @Q 5 b:1/w 7 c:1/w", "ZADD @A -1h b:1/w +0.4h c:1/w"}), beat("c:1"),
			"2 of 2, held by a:1 for 1h 5000000000000000 host-1", stillHeld + "; queue 11h b:1=5 c:1=7; alive 11h b:1=over c:1=1h grace=1h"},
		{"the clock was set back in a grace: one heartbeat from now", with(heldFair, []string{"ZADD @Q 5 b:1/w 7 c:1/w", "ZADD @A +8h b:1/w +9h c:1/w +9.5h grace"}), beat("c:1"),
			"2 of 2, held by a:1 for 1h 5000000000000000 host-1", stillHeld + "; queue 11h b:1=5 c:1=7; alive 11h b:1=1h c:1=1h grace=1h"},
		{"only the grace is from before the clock was set back", with(heldFair, []string{"ZADD @Q 5 b:1/w 7 c:1/w", "ZADD @A -1h b:1/w +0.8h c:1/w +9.5h grace"}), beat("c:1"),
			"2 of 2, held by a:1 for 1h 5000000000000000 host-1", stillHeld + "; queue 11h b:1=5 c:1=7; alive 11h b:1=over c:1=1h grace=1h"},
		{"no second grace within two heartbeats", with(heldFair, []string{"ZADD @Q 5 b:1/w 7 c:1/w", "ZADD @A -1h b:1/w +0.4h c:1/w -0.5h grace"}), beat("c:1"),
			"1 of 1, held by a:1 for 1h 5000000000000000 host-1", stillHeld + "; queue 11h c:1=7; alive 11h c:1=1h grace=over"},
		{"removed by an operator", with(heldFair, []string{"ZADD @A -5000000000001 b:1/w"}), beat("b:1"), "removed",
			stillHeld + "; alive forever b:1=note"},
		{"lock of another type", with([]string{"SET @L x"}, bcQueued), beat("b:1"), "WRONGTYPE", "lock forever x" + bcWait},
		{"lock of another type, a batch", with([]string{"SET @L x"}, bcQueued), beat("b:1", "c:1"), "denied; denied", "lock forever x" + bcWait},
		{"a read-write lock of Redisson", with([]string{"HSET @L mode write a:1:write 1"}, bcQueued), beat("b:1"), "WRONGTYPE", "lock forever a:1:write:1 mode:write" + bcWait},
		{"fence that cannot be counted up", with([]string{"SET @F 9007199254740991"}, bcQueued), beat("b:1"), "BADFENCE",
			"fence forever 9007199254740991; queue 11h b:1=5 c:1=7; alive 11h b:1=1h c:1=1h"},
		{"queue of another type", []string{"SET @Q x"}, beat("b:1"), "WRONGTYPE", "queue forever x"},
		{"heartbeats of another type", with(heldFair, []string{"SET @A x"}), beat("b:1"), "WRONGTYPE", stillHeld + "; alive forever x"},
		{"an end that is long over is no note of an operator", with(heldFair, []string{"ZADD @A 0 b:1/w"}), beat("b:1"), "gone",
			stillHeld + "; alive forever b:1=over"},
		{"a heartbeat of no time is over at once", with(heldFair, []string{"ZADD @Q 5 b:1/w 7 c:1/none", "ZADD @A +1h b:1/w +1h c:1/none"}),
			beatWithoutTime("c:1"), "gone", stillHeld + "; queue 1h b:1=5; alive 1h b:1=1h"},
	})
}

// beatWithoutTime is of a waiter whose heartbeat lasts no time.
func beatWithoutTime(who string) func(context.Context, lua.Redis) (string, error) {
	return func(ctx context.Context, rdb lua.Redis) (string, error) {
		w := waiter(who)
		w.Heartbeat = 0
		r, err := lua.Heartbeats(ctx, rdb, 0, "c", true, []lua.Heartbeat{{Keys: fairKeys, Waiter: w}})
		if err != nil {
			return "", err
		}
		return statusNames[r[0].Status], nil
	}
}

func TestLeaveHandsOnWhatWasItsOwn(t *testing.T) {
	runRows(t, []row{
		{"nobody waits", heldFair, leave("a:1"), "freed, received by 0", seededOnly},
		{"one waits whose lease is shorter than its heartbeat", with(heldFair, []string{"ZADD @Q 5 b:1/s", "ZADD @A +9h b:1/s"}), leave("a:1"), "freed, received by 0",
			"lock 2h b:1:1 redlatch:about:host-1; fence forever 5000000000000001"},
		{"others wait", with(heldFair, bcQueued), leave("a:1"), "freed, received by 0",
			"lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 2h c:1=7; alive 2h c:1=1h"},
		{"the last of the queue is granted: nothing of it is left", with(heldFair, []string{"ZADD @Q 5 b:1/w", "ZADD @A +1h b:1/w -3h grace"}), leave("a:1"),
			"freed, received by 0", "lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001"},
		{"only the dead wait, and had their grace", with(heldFair, []string{"ZADD @Q 5 b:1/w", "ZADD @A -1h b:1/w -0.5h grace"}), leave("a:1"),
			"freed, received by 0", seededOnly},
		{"a waiter gives up", with(heldFair, bcQueued), leave("b:1"), "left, received by 0", stillHeld + "; queue 2h c:1=7; alive 2h c:1=1h"},
		{"the last waiter gives up: nothing is left", with(heldFair, []string{"ZADD @Q 5 b:1/w", "ZADD @A +1h b:1/w +1h grace"}), leave("b:1"),
			"left, received by 0", stillHeld},
		{"a waiter gives up, and the lock is free: it goes on", with([]string{"SET @F 5000000000000000"}, bcQueued), leave("b:1"), "left, received by 0",
			"lock 1h c:1:1 redlatch:about:host-1; fence forever 5000000000000001"},
		{"a waiter that was granted meanwhile gives up: it goes on", with([]string{"HSET @L d:1 1", "SET @F 5000000000000000"}, bcQueued), leave("d:1"),
			"freed, received by 0", "lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 2h c:1=7; alive 2h c:1=1h"},
		{"it stands in the queue too, and is the first", with([]string{"HSET @L b:1 3 redlatch:about old", "SET @F 5000000000000000"}, bcQueued), leave("b:1"),
			"freed, received by 0", "lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 2h c:1=7; alive 2h c:1=1h"},
		{"two had it: both end", with([]string{"HSET @L a:1 1 d:1 2", "SET @F 5000000000000000"}, bcQueued), leave("a:1"),
			"freed, received by 0", "lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 2h c:1=7; alive 2h c:1=1h"},
		{"the next has no description", with(heldFair, []string{"ZADD @Q 5 b:1/bare", "ZADD @A +1h b:1/bare"}), leave("a:1"),
			"freed, received by 0", "lock 1h b:1:1; fence forever 5000000000000001"},
		{"another's", with(heldFair, bcQueued), leave("x:1"), "gone, received by 0", stillHeld + bcWait},
		{"an id that begins with the holder's", with(heldFair, bcQueued), leave("a:12"), "gone, received by 0", stillHeld + bcWait},
		{"nobody's", nil, leave("a:1"), "gone, received by 0", ""},
		{"queue of another type: free all the same", with(heldFair, []string{"SET @Q x"}), leave("a:1"), "freed, received by 0", seededOnly + "; queue forever x"},
		{"fence that cannot be counted up: free all the same", with([]string{"HSET @L a:1 1", "SET @F x"}, bcQueued), leave("a:1"), "freed, received by 0",
			"fence forever x" + bcWait},
		{"lock of another type", []string{"SET @L x"}, leave("a:1"), "gone, received by 0", "lock forever x"},
		{"heartbeats of another type: free all the same", with(heldFair, []string{"ZADD @Q 5 b:1/w", "SET @A x"}), leave("a:1"), "freed, received by 0",
			seededOnly + "; queue forever b:1=5; alive forever x"},
	})
}

func TestForceReleaseGrantsToTheNext(t *testing.T) {
	runRows(t, []row{
		{"nobody waits", heldFair, forceFair(""), "freed a:1", seededOnly},
		{"others wait", with(heldFair, bcQueued), forceFair("a:1"), "freed a:1",
			"lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 2h c:1=7; alive 2h c:1=1h"},
		{"it stands in the queue too, and is the first", with([]string{"HSET @L b:1 3 redlatch:about old", "SET @F 5000000000000000"}, bcQueued), forceFair("b:1"),
			"freed b:1", "lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 2h c:1=7; alive 2h c:1=1h"},
		{"another than expected", with(heldFair, bcQueued), forceFair("b:1"), "busy a:1", stillHeld + bcWait},
		{"nobody", nil, forceFair(""), "nobody", ""},
		{"nobody, others wait: it goes on", with([]string{"SET @F 5000000000000000"}, bcQueued), forceFair("a:1"), "nobody",
			"lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 2h c:1=7; alive 2h c:1=1h"},
		{"queue of another type", with(heldFair, []string{"SET @Q x"}), forceFair(""), "freed a:1", seededOnly + "; queue forever x"},
		{"a read-write lock of Redisson", []string{"HSET @L mode write a:1:write 1"}, forceFair(""), "WRONGTYPE", "lock forever a:1:write:1 mode:write"},
		{"lock of another type", []string{"SET @L x"}, forceFair(""), "WRONGTYPE", "lock forever x"},
	})
}

func TestRemoveTakesAWaiterOutAndLeavesANote(t *testing.T) {
	runRows(t, []row{
		{"a waiter", with(heldFair, bcQueued), removeWaiter("b:1"), "true", stillHeld + "; queue 2h c:1=7; alive 3h b:1=note c:1=1h"},
		{"the last", with(heldFair, []string{"ZADD @Q 5 b:1/w", "ZADD @A +1h b:1/w +1h grace"}), removeWaiter("b:1"), "true",
			stillHeld + "; alive 3h b:1=note"},
		{"a copy finds the note", with(heldFair, []string{"ZADD @A -5000000000001 b:1/w"}), removeWaiter("b:1"), "true",
			stillHeld + "; alive forever b:1=note"},
		{"the holder is no waiter", with(heldFair, bcQueued), removeWaiter("a:1"), "false", stillHeld + bcWait},
		{"nobody", nil, removeWaiter("a:1"), "false", ""},
		{"an end that is long over is no note", []string{"ZADD @A 0 a:1/w"}, removeWaiter("a:1"), "false", "alive forever a:1=over"},
		{"queue of another type", []string{"SET @Q x"}, removeWaiter("a:1"), "WRONGTYPE", "queue forever x"},
	})
}

func TestQueueSeesAndChangesNothing(t *testing.T) {
	runRows(t, []row{
		{"empty", nil, queue(0, 10), "0:", ""},
		{"all", bcQueued, queue(0, 10), "2: b:1 x1 1h0m0s host-1 1h c:1 x1 1h0m0s host-1 1h", strings.TrimPrefix(bcWait, "; ")},
		{"a part", bcQueued, queue(1, 1), "2: c:1 x1 1h0m0s host-1 1h", strings.TrimPrefix(bcWait, "; ")},
		{"behind the end", bcQueued, queue(2, 10), "2:", strings.TrimPrefix(bcWait, "; ")},
		{"a dead one, and one without a heartbeat", []string{"ZADD @Q 5 b:1/w 7 c:1/w", "ZADD @A -1h b:1/w"}, queue(0, 10),
			"2: b:1 x1 1h0m0s host-1 dead c:1 x1 1h0m0s host-1 dead", "queue forever b:1=5 c:1=7; alive forever b:1=over"},
		{"a dead one in its grace", []string{"ZADD @Q 5 b:1/w", "ZADD @A -1h b:1/w +1h grace"}, queue(0, 10),
			"1: b:1 x1 1h0m0s host-1 1h", "queue forever b:1=5; alive forever b:1=over grace=1h"},
		{"queue of another type", []string{"SET @Q x"}, queue(0, 10), "WRONGTYPE", "queue forever x"},
	})
}

// Waiters with one ticket never stand in two parts, so that a part which begins behind a
// ticket repeats nobody and leaves out nobody.
func TestAPartOfAQueueEndsBetweenTickets(t *testing.T) {
	given := []string{"ZADD @Q 5 b:1/w 7 c:1/w 7 c:2/w 7 c:3/w 1700000000000001 d:1/w 1700000000000001 d:2/w"}
	const after = "queue forever b:1=5 c:1=7 c:2=7 c:3=7 d:1=clock d:2=clock"
	shown := func(who ...string) string {
		s := "6:"
		for _, w := range who {
			s += " " + w + " x1 1h0m0s host-1 dead"
		}
		return s
	}
	runRows(t, []row{
		{"before the others", given, queue(0, 1), shown("b:1"), after},
		{"among the others", given, queue(0, 2), shown("b:1", "c:1", "c:2", "c:3"), after},
		{"from among the others", given, queue(2, 1), shown("c:2", "c:3"), after},
		{"from the last of the others", given, queue(3, 1), shown("c:3"), after},
		{"beyond the others", given, queue(3, 2), shown("c:3", "d:1", "d:2"), after},
		{"behind a ticket", given, queueBehind(0, "5", 1), shown("c:1", "c:2", "c:3"), after},
		{"behind one that nobody has", given, queueBehind(0, "6", 3), shown("c:1", "c:2", "c:3"), after},
		{"behind the others", given, queueBehind(0, "7", 9), shown("d:1", "d:2"), after},
		{"behind the last", given, queueBehind(0, "1700000000000001", 9), shown(), after},

		{"found", given, find("c:2", "", 6), "queued c:2 x1 1h0m0s host-1", after},
		{"found with the ticket of the last", given, find("c:3", "5", 1), "queued c:3 x1 1h0m0s host-1", after},
		{"not in this part", given, find("d:1", "", 2), "gone, go on behind 7", after},
		{"not behind it", given, find("c:3", "7", 2), "gone, go on behind 1700000000000001", after},
		{"nowhere", given, find("c:3", "7", 3), "gone", after},
		{"the beginning of another", given, find("c", "", 6), "gone, go on behind 1700000000000001", after},
		{"no queue", nil, find("c:1", "", 6), "gone", ""},
		{"no waiter", []string{"ZADD @Q 5 odd"}, find("odd", "", 6), "gone", "queue forever odd=5"},
		{"queue of another type", []string{"SET @Q x"}, find("c:1", "", 6), "WRONGTYPE", "queue forever x"},
	})
}

// manyDead has a:1 hold the lock, and so many in the queue that are dead and had their grace.
func manyDead(t *testing.T, b *backend, n int) {
	t.Helper()
	prepare(t, b.rdb, append([]string{"FLUSHALL"}, heldFair...)...)
	var dead []redis.Z
	for i := range n {
		dead = append(dead, redis.Z{Score: float64(i + 1), Member: fmt.Sprintf("d:%d 1 3600000 3600000", i)})
	}
	require.NoError(t, b.rdb.ZAdd(t.Context(), names.Queue, dead...).Err())
	require.NoError(t, b.rdb.ZAdd(t.Context(), names.Alive, dead...).Err())
	prepare(t, b.rdb, "ZADD @A -0.5h grace")
}

// play runs calls, each with what it must answer.
func (b *backend) play(t *testing.T, steps ...row) {
	t.Helper()
	for _, s := range steps {
		got, err := s.call(t.Context(), b.rdb)
		require.NoError(t, err)
		require.Equal(t, s.reply, got)
	}
}

// Five hundred dead ones are dropped by one call; more by the next.
func TestVeryManyExpiredAreDroppedInPieces(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		for _, freed := range [][]row{
			{{call: leave("a:1"), reply: "freed, received by 0, more"}, {call: join("c:1"), reply: "queued 252 of 252, free"},
				{call: leave("a:1"), reply: "gone, received by 0"}},
			{{call: forceFair("a:1"), reply: "freed a:1, more"}, {call: join("c:1"), reply: "queued 252 of 252, free"},
				{call: forceFair("a:1"), reply: "nobody"}},
		} {
			manyDead(t, b, 1250)
			prepare(t, b.rdb, "ZADD @Q 9000 b:1/w", "ZADD @A +1h b:1/w", "ZREM @A grace")
			b.play(t, freed...)
			require.Equal(t, "lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 11h c:1=clock; alive 11h c:1=1h", keyspace(t, b.rdb))
		}
	})
}

// Nobody of them lives: the last call tells those who wait without a queue.
func TestPlainWaitersAreNotifiedBehindVeryManyExpired(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		sub := b.rdb.Subscribe(t.Context(), names.Channel)
		defer sub.Close()
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
		for _, freed := range [][]row{
			{{call: leave("a:1"), reply: "freed, received by 0, more"},
				{call: leave("a:1"), reply: "gone, received by 1"}, {call: leave("a:1"), reply: "gone, received by 0"}},
			{{call: forceFair("a:1"), reply: "freed a:1, more"},
				{call: forceFair("a:1"), reply: "nobody"}},
		} {
			// A whole number of calls: the last has to know that it is the last.
			manyDead(t, b, 1000)
			b.play(t, freed...)
			require.Equal(t, seededOnly, keyspace(t, b.rdb))
			m, err := sub.ReceiveMessage(t.Context())
			require.NoError(t, err)
			require.Equal(t, "0", m.Payload)
		}
	})
}

// Only the client of the waiter that is granted hears of it; others that wait
// without a queue only when the lock is free for them.
func TestOneClientIsNotifiedOfAGrant(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx := t.Context()
		sub := b.rdb.Subscribe(ctx, key.ClientPrefix+"b", key.ClientPrefix+"c", names.Channel)
		defer sub.Close()
		for range 3 {
			_, err := sub.Receive(ctx)
			require.NoError(t, err)
		}
		prepare(t, b.rdb, with(heldFair, bcQueued)...)
		for _, c := range []func(context.Context, lua.Redis) (string, error){
			leave("a:1"), forceFair("b:1"), leave("c:1"), // a -> b -> c -> nobody
			join("x:1"), join("b:2"), join("c:2"), removeWaiter("c:2"), leave("c:2"), leave("b:2"), leave("x:1"),
		} {
			_, err := c(ctx, b.rdb)
			require.NoError(t, err)
		}
		require.NoError(t, b.rdb.Publish(ctx, names.Channel, "end").Err())
		var received []string
		for len(received) == 0 || !strings.HasSuffix(received[len(received)-1], "end") {
			m, err := sub.ReceiveMessage(ctx)
			require.NoError(t, err)
			received = append(received, strings.TrimPrefix(m.Channel, key.ClientPrefix)+": "+m.Payload)
		}
		require.Equal(t, []string{
			"b: b:1", "c: c:1", names.Channel + ": 0",
			"c: c:2", names.Channel + ": 0", names.Channel + ": end",
		}, received)
	})
}

// Those who wait without a queue hear of a lock that somebody freed, and of no other.
func TestNobodyIsNotifiedOfALockThatNobodyFreed(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx := t.Context()
		sub := b.rdb.Subscribe(ctx, names.Channel)
		defer sub.Close()
		_, err := sub.Receive(ctx)
		require.NoError(t, err)
		b.play(t, row{call: forceFair(""), reply: "nobody"}, row{call: leave("x:1"), reply: "gone, received by 0"})
		require.NoError(t, b.rdb.Publish(ctx, names.Channel, "nobody freed it").Err())
		prepare(t, b.rdb, with(heldFair, []string{"ZADD @Q 5 b:1/w", "SET @A x"})...)
		b.play(t, row{call: leave("a:1"), reply: "freed, received by 1"})
		prepare(t, b.rdb, heldFair...)
		b.play(t, row{call: forceFair("a:1"), reply: "freed a:1"})
		for _, want := range []string{"nobody freed it", "0", "0"} {
			m, err := sub.ReceiveMessage(ctx)
			require.NoError(t, err)
			require.Equal(t, want, m.Payload)
		}
	})
}

func TestWaitersOfAnyDescriptionAreOnlyData(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx := t.Context()
		for _, about := range []string{"", "1 2 3", "grace", " leads and trails ", "a\x00\r\n🔒", "%s %d .*", "'\"; return 1 --"} {
			require.NoError(t, b.rdb.FlushAll(ctx).Err())
			prepare(t, b.rdb, heldFair...)
			w := lua.Waiter{Acquisition: "b:1", Units: 3, Heartbeat: hour, Lease: 2 * hour, Description: about}
			_, err := lua.Join(ctx, b.rdb, lua.JoinParams{Keys: fairKeys, Waiter: w, VoidAfter: never, ClientChannels: "c"})
			require.NoError(t, err)
			shown, err := lua.Queue(ctx, b.rdb, names.Queue, names.Alive, 0, "", 1)
			require.NoError(t, err)
			w.Description = strings.TrimRight(about, " ")
			require.Equal(t, w, shown.Waiters[0].Waiter)
			_, err = leave("a:1")(ctx, b.rdb)
			require.NoError(t, err)
			in, err := lua.Inspect(ctx, b.rdb, names.Lock, names.Fence)
			require.NoError(t, err)
			require.Equal(t, "b:1", in.Holder)
			require.Equal(t, w.Description, in.Description)
		}
	})
}

// Lists find locks by their fences. The command that grants the lock often comes from a client that
// knows nothing of the waiter's lease.
func TestTheFenceOfAWaiterLivesForTwoOfItsLeases(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx := t.Context()
		short := "SET @F 5000000000000000 PX 3600000"
		held := []string{"HSET @L a:1 1", "PEXPIRE @L 3600000", short}
		beat := func(who string, take bool) func() error {
			return func() error {
				_, err := lua.Heartbeats(ctx, b.rdb, hour, key.ClientPrefix, take, []lua.Heartbeat{{Keys: fairKeys, Waiter: waiter(who)}})
				return err
			}
		}
		for name, c := range map[string]struct {
			given []string
			grant func() error
		}{
			"release": {with(held, bcQueued), func() error {
				_, err := lua.ReleaseFair(ctx, b.rdb, lua.ReleaseFairParams{
					Keys: fairKeys, Waiter: waiter("a:1"), Channel: names.Channel, ClientChannels: key.ClientPrefix, FenceRetention: hour,
				})
				return err
			}},
			"forced release": {with(held, bcQueued), func() error {
				_, err := lua.ForceReleaseFair(ctx, b.rdb, lua.ForceReleaseFairParams{
					Keys: fairKeys, Channel: names.Channel, ClientChannels: key.ClientPrefix, FenceRetention: hour,
				})
				return err
			}},
			"heartbeat of another":               {with([]string{short}, bcQueued), beat("c:1", true)},
			"heartbeat, when the fence was lost": {[]string{"HSET @L b:1 1", "PEXPIRE @L 3600000"}, beat("b:1", true)},
			"the same, and it takes nothing":     {[]string{"HSET @L b:1 1", "PEXPIRE @L 3600000"}, beat("b:1", false)},
		} {
			prepare(t, b.rdb, "FLUSHALL")
			prepare(t, b.rdb, c.given...)
			require.NoError(t, c.grant(), name)
			require.True(t, b.rdb.HExists(ctx, names.Lock, "b:1").Val(), name)
			require.GreaterOrEqual(t, b.rdb.PTTL(ctx, names.Fence).Val(), 2*waiter("b:1").Lease-time.Minute, name)
		}
	})
}

// Beats alone keep no grant: one whose waiter does not take it ends with the heartbeat.
func TestAHeartbeatThatTakesOverNothingExtendsNoGrant(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx := t.Context()
		prepare(t, b.rdb, with(heldFair, bcQueued)...)
		_, err := leave("a:1")(ctx, b.rdb)
		require.NoError(t, err)
		first := b.rdb.PTTL(ctx, names.Lock).Val()
		require.LessOrEqual(t, first, hour)
		for _, take := range []bool{false, true} {
			got, err := lua.Heartbeats(ctx, b.rdb, 0, "c", take, []lua.Heartbeat{{Keys: fairKeys, Waiter: waiter("b:1")}})
			require.NoError(t, err)
			require.Equal(t, lua.Granted, got[0].Status)
			require.Positive(t, got[0].Fence)
			left := b.rdb.PTTL(ctx, names.Lock).Val()
			if take {
				require.Equal(t, "4h", hours(left))
			} else {
				require.LessOrEqual(t, left, first)
			}
		}
	})
}

func TestHeartbeatsOfManyLocksAnswerEach(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx := t.Context()
		var batch []lua.Heartbeat
		for i := range 100 {
			k := key.ForMutex(fmt.Sprintf("{x}%d", i))
			batch = append(batch, lua.Heartbeat{Keys: lua.FairKeys{Lock: k.Lock, Fence: k.Fence, Queue: k.Queue, Alive: k.Alive}, Waiter: waiter("b:1")})
			if i%2 == 0 {
				prepare(t, b.rdb, "HSET "+k.Lock+" a:1 1", "ZADD "+k.Queue+" 5 b:1/w", "ZADD "+k.Alive+" +1h b:1/w")
			}
		}
		got, err := lua.Heartbeats(ctx, b.rdb, 0, "c", true, batch)
		require.NoError(t, err)
		for i, a := range got {
			if i%2 == 0 {
				require.Equal(t, lua.QueueState{Position: 1, Length: 1, Holder: "a:1", Remaining: -time.Millisecond}, a.QueueState)
			} else {
				require.Equal(t, lua.Gone, a.Status)
			}
		}
		got, err = lua.Heartbeats(ctx, b.rdb, 0, "c", true, nil)
		require.NoError(t, err)
		require.Empty(t, got)
	})
}

// All locks of one call share what it may do for others: a hundred of them, with a
// hundred dead each, cost no more than one does. Whoever waits for a lock that is free,
// and not handed on yet, gets that answer.
func TestOneCallDropsNoMoreForManyLocks(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		ctx, now := t.Context(), float64(serverTime(t, b.rdb).UnixMilli())
		var fair []lua.Heartbeat
		var permits []lua.PermitHeartbeat
		var queues []string
		for i := range 20 {
			f, s := key.ForMutex(fmt.Sprintf("{x}%d", i)), key.ForSemaphore(fmt.Sprintf("{x}%d", i))
			fair = append(fair, lua.Heartbeat{Keys: lua.FairKeys{Lock: f.Lock, Fence: f.Fence, Queue: f.Queue, Alive: f.Alive}, Waiter: waiter("b:1")})
			keys := lua.SemaphoreKeys{Permits: s.Permits, Holders: s.Holders, Queue: s.Queue, Alive: s.Alive}
			permits = append(permits, lua.PermitHeartbeat{Keys: keys, Waiter: waiter("b:1"), Limit: 8})
			pipe := b.rdb.Pipeline()
			for _, k := range [][2]string{{f.Queue, f.Alive}, {s.Queue, s.Alive}} {
				queues = append(queues, k[0])
				living := redis.Z{Score: now + float64(hour.Milliseconds()), Member: "b:1 1 3600000 14400000 host-1"}
				dead := make([]redis.Z, 100)
				for d := range dead {
					dead[d] = redis.Z{Score: float64(d + 1), Member: fmt.Sprintf("d:%d 1 3600000 3600000", d)}
				}
				pipe.ZAdd(ctx, k[0], append(dead, living)...)
				pipe.ZAdd(ctx, k[1], append(dead, living)...)
			}
			_, err := pipe.Exec(ctx)
			require.NoError(t, err)
		}
		waiting := func() (n int) {
			for _, k := range queues {
				n += int(b.rdb.ZCard(ctx, k).Val())
			}
			return n
		}
		before := waiting()
		answers, err := lua.Heartbeats(ctx, b.rdb, 0, "c", true, fair)
		require.NoError(t, err)
		for i, a := range answers {
			if a.Status == lua.Granted {
				require.Less(t, i, 5)
				continue
			}
			require.Empty(t, a.QueueState.Holder)
			require.Zero(t, a.QueueState.Remaining)
		}
		require.Greater(t, waiting(), before-600)
		before = waiting()
		answers, err = lua.PermitHeartbeats(ctx, b.rdb, 0, "c", true, permits)
		require.NoError(t, err)
		for i, a := range answers {
			if a.Status == lua.Granted {
				require.Less(t, i, 5)
				continue
			}
			require.Zero(t, a.QueueState.Remaining)
		}
		require.Greater(t, waiting(), before-600)
		for range 20 { // each asks again alone
			for i := range fair {
				_, err = lua.Heartbeats(ctx, b.rdb, 0, "c", true, fair[i:i+1])
				require.NoError(t, err)
				_, err = lua.PermitHeartbeats(ctx, b.rdb, 0, "c", true, permits[i:i+1])
				require.NoError(t, err)
			}
			if waiting() == 0 {
				return
			}
		}
		require.Zero(t, waiting(), "all that live have it, and the dead are gone")
	})
}

// Without memory nobody is queued, and nobody loses a place or a lock.
func TestWithoutMemoryQueuesOnlyShrinkAndGoOn(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	rdb := dial(t, s.addr, 3, nil)
	const passedOn = "lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 2h c:1=7; alive 2h c:1=1h"
	for _, r := range []row{
		{"a free lock", []string{"SET @F 7"}, join("a:1"), "OOM", "fence forever 7"},
		{"a place", heldFair, join("b:1"), "OOM", stillHeld},
		{"a beat", with(heldFair, bcQueued), beat("b:1"), "1 of 2, held by a:1 for 1h 5000000000000000 host-1",
			stillHeld + "; queue 11h b:1=5 c:1=7; alive 11h b:1=1h c:1=1h"},
		{"a beat behind a longer heartbeat", with(heldFair, bcQueued, []string{"PEXPIRE @Q 72000000", "PEXPIRE @A 72000000"}), beat("b:1"),
			"1 of 2, held by a:1 for 1h 5000000000000000 host-1", stillHeld + "; queue 20h b:1=5 c:1=7; alive 20h b:1=1h c:1=1h"},
		{"a beat that finds its grant", heldFair, beat("a:1"), "granted 5000000000000000",
			"lock 4h a:1:1 redlatch:about:host-1; fence forever 5000000000000000"},
		{"a release", with(heldFair, bcQueued), leave("a:1"), "freed, received by 0", passedOn},
		{"giving up", with(heldFair, bcQueued), leave("b:1"), "left, received by 0", stillHeld + "; queue 2h c:1=7; alive 2h c:1=1h"},
		{"force", with(heldFair, bcQueued), forceFair(""), "freed a:1", passedOn},
	} {
		prepare(t, rdb, "CONFIG SET maxmemory 0", "FLUSHALL")
		prepare(t, rdb, r.given...)
		prepare(t, rdb, "CONFIG SET maxmemory 1")
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

// After a lost reply a copy of the command tells the truth and changes nothing.
func TestCopiesOfFairScriptsAreAnsweredTruly(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		for _, c := range []struct {
			row
			copy string
		}{
			{row{"a grant", []string{"SET @F 5000000000000000"}, join("a:1"), "granted 5000000000000001",
				"lock 4h a:1:1 redlatch:about:host-1; fence forever 5000000000000001"}, "granted 5000000000000001"},
			{row{"a place", heldFair, join("b:1"), "queued 1 of 1, held by a:1 for 1h 5000000000000000 host-1",
				stillHeld + "; queue 11h b:1=clock; alive 11h b:1=1h"}, "queued 1 of 1, held by a:1 for 1h 5000000000000000 host-1"},
			{row{"a grant to another", with([]string{"SET @F 5000000000000000"}, bcQueued), join("d:1", tryOnly),
				"busy 2 of 1, held by b:1 for 1h 5000000000000001 host-1",
				"lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 2h c:1=7; alive 2h c:1=1h"},
				"busy 2 of 1, held by b:1 for 1h 5000000000000001 host-1"},
			{row{"a release", with(heldFair, bcQueued), leave("a:1"), "freed, received by 0",
				"lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 2h c:1=7; alive 2h c:1=1h"}, "gone, received by 0"},
			{row{"giving up", with(heldFair, bcQueued), leave("b:1"), "left, received by 0",
				stillHeld + "; queue 2h c:1=7; alive 2h c:1=1h"}, "gone, received by 0"},
			{row{"a look", bcQueued, find("c:1", "", 1), "gone, go on behind 5", strings.TrimPrefix(bcWait, "; ")}, "gone, go on behind 5"},
			{row{"a removal", with(heldFair, bcQueued), removeWaiter("b:1"), "true",
				stillHeld + "; queue 2h c:1=7; alive 3h b:1=note c:1=1h"}, "true"},
			{row{"a forced release", with(heldFair, bcQueued), forceFair("a:1"), "freed a:1",
				"lock 1h b:1:1 redlatch:about:host-1; fence forever 5000000000000001; queue 2h c:1=7; alive 2h c:1=1h"}, "busy b:1"},
		} {
			require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
			prepare(t, b.rdb, c.given...)
			for _, want := range []string{c.reply, c.copy} {
				got, err := c.call(t.Context(), b.rdb)
				require.NoError(t, err, c.name)
				require.Equal(t, want, got, c.name)
				require.Equal(t, c.after, keyspace(t, b.rdb), c.name)
			}
		}
	})
}
