package lua_test

import (
	"context"
	"errors"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lua"
)

// fake answers every script with one value.
type fake struct{ value any }

func (f fake) Process(_ context.Context, cmd redis.Cmder) error {
	if err, ok := f.value.(error); ok {
		cmd.SetErr(err)
		return err
	}
	cmd.(interface{ SetVal(any) }).SetVal(f.value)
	return nil
}

// ask puts the same answer before every function and gives the errors; a
// status that is no status of the function is an error of the test.
func ask(t *testing.T, value any) map[string]error {
	t.Helper()
	ctx, f := context.Background(), fake{value}
	errs := map[string]error{}
	note := func(name string, status lua.Status, err error, allowed ...lua.Status) {
		errs[name] = err
		if err == nil {
			require.Contains(t, allowed, status, "%s: %#v", name, value)
		}
	}
	a, err := lua.Acquire(ctx, f, lua.AcquireParams{})
	note("acquire", a.Status, err, lua.Granted, lua.Busy, lua.Gone, lua.Void)
	r, err := lua.Release(ctx, f, lua.ReleaseParams{})
	note("release", r.Status, err, lua.Freed, lua.StillHeld, lua.Gone)
	x, err := lua.Transfer(ctx, f, lua.TransferParams{})
	note("transfer", x.Status, err, lua.Granted, lua.Gone, lua.Void)
	o, err := lua.ForceRelease(ctx, f, lua.ForceReleaseParams{})
	note("force", o.Status, err, lua.Freed, lua.NotHeld, lua.Busy)
	n, err := lua.Renew(ctx, f, make([]lua.Renewal, 2))
	errs["renew"] = err
	if err == nil {
		require.Len(t, n, 2)
	} else {
		require.Nil(t, n)
	}
	_, errs["inspect"] = lua.Inspect(ctx, f, "l", "f")
	j, err := lua.Join(ctx, f, lua.JoinParams{})
	note("join", j.Status, err, lua.Granted, lua.Queued, lua.Busy, lua.Void)
	l, err := lua.ReleaseFair(ctx, f, lua.ReleaseFairParams{})
	note("leave", l.Status, err, lua.Freed, lua.LeftQueue, lua.Gone)
	o, err = lua.ForceReleaseFair(ctx, f, lua.ForceReleaseFairParams{})
	note("force fair", o.Status, err, lua.Freed, lua.NotHeld, lua.Busy)
	j, err = lua.AcquirePermits(ctx, f, lua.AcquirePermitsParams{})
	note("acquire permits", j.Status, err, lua.Granted, lua.Queued, lua.Busy, lua.Void, lua.LimitDiffers, lua.OverLimit)
	p, err := lua.ReleasePermits(ctx, f, lua.ReleasePermitsParams{})
	note("release permits", p.Status, err, lua.Freed, lua.LeftQueue, lua.Gone)
	z, err := lua.Resize(ctx, f, lua.ResizeParams{})
	note("resize", z.Status, err, lua.Freed, lua.Superseded, lua.Void)
	d, err := lua.Find(ctx, f, "q", "a", "a:1", "", 10)
	if errs["find"] = err; err == nil {
		require.Contains(t, []lua.Status{lua.Queued, lua.Gone}, d.Status, "%#v", value)
	}
	_, _, errs["force permits"] = lua.ForceReleasePermits(ctx, f, lua.SemaphoreKeys{}, "a:1", 0, "c")
	_, errs["inspect permits"] = lua.InspectPermits(ctx, f, lua.SemaphoreKeys{}, 10)
	return errs
}

func TestAnswersThatNoScriptGivesAreErrors(t *testing.T) {
	t.Parallel()
	for _, value := range []any{
		nil, "OK", int64(1), 1.5, true, "", []any{}, []any{nil}, []any{"1"}, []any{int64(7)}, []any{int64(-7), int64(1)},
		[]any{int64(1)}, []any{1.0, int64(1), int64(1)}, []any{[]any{int64(1)}}, map[any]any{int64(1): int64(2)},
		[]any{int64(1), errors.New("x")}, []any{int64(-1)}, []any{int64(7), int64(1), int64(1)}, big.NewInt(1), redis.Nil,
	} {
		for name, err := range ask(t, value) {
			var wrong *lua.ReplyError
			require.ErrorAs(t, err, &wrong, "%s: %#v", name, value)
			require.NotEmpty(t, wrong.Error())
			fault, code := lua.Classify(err)
			require.Equal(t, lua.Failed, fault)
			require.Equal(t, "REPLY", code)
		}
	}
}

// A short reply counts only from scripts that give it.
func TestOnlySomeScriptsHaveShortAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value any
		from  []string
	}{
		{int64(1_000_000), []string{"acquire", "transfer", "join", "acquire permits"}},
		{int64(999_999), nil},
		{int64(-1_000_000), nil},
		{"free", []string{"release", "leave", "release permits"}},
		{"Free", nil},
		{"1000000", nil},
	} {
		var from []string
		for name, err := range ask(t, c.value) {
			if err == nil {
				from = append(from, name)
			}
		}
		require.ElementsMatch(t, c.from, from, "%v", c.value)
	}
}

func TestErrorsOfTheServerStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	for name, err := range ask(t, answered("OOM command not allowed")) {
		require.ErrorIs(t, err, answered("OOM command not allowed"), name)
	}
}

// Each place of each answer has a number of its own, which has to come out in the
// field that is meant.
func TestAnswersAreReadFromTheirPlaces(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	place := []any{int64(11), int64(12), int64(13), "a:1", "about", int64(16)}
	inQueue := lua.QueueState{Position: 11, Length: 12, Remaining: 13 * time.Millisecond, Holder: "a:1", Description: "about", Fence: 16}
	room := []any{int64(11), int64(12), int64(-13), int64(14), int64(15)}
	inRoom := lua.QueueState{Position: 11, Length: 12, Free: -13, Limit: 14, Remaining: 15 * time.Millisecond}
	list := func(fields ...any) (all []any) {
		for _, f := range fields {
			switch f := f.(type) {
			case int:
				all = append(all, int64(f))
			case []any:
				all = append(all, f...)
			default:
				all = append(all, f)
			}
		}
		return all
	}
	acquire := func(f fake) (any, error) { return lua.Acquire(ctx, f, lua.AcquireParams{}) }
	release := func(f fake) (any, error) { return lua.Release(ctx, f, lua.ReleaseParams{}) }
	transfer := func(f fake) (any, error) { return lua.Transfer(ctx, f, lua.TransferParams{}) }
	force := func(f fake) (any, error) { return lua.ForceRelease(ctx, f, lua.ForceReleaseParams{}) }
	inspect := func(f fake) (any, error) { return lua.Inspect(ctx, f, "l", "f") }
	join := func(f fake) (any, error) { return lua.Join(ctx, f, lua.JoinParams{}) }
	leave := func(f fake) (any, error) { return lua.ReleaseFair(ctx, f, lua.ReleaseFairParams{}) }
	forceFair := func(f fake) (any, error) { return lua.ForceReleaseFair(ctx, f, lua.ForceReleaseFairParams{}) }
	queue := func(f fake) (any, error) { return lua.Queue(ctx, f, "q", "a", 0, "", 10) }
	find := func(f fake) (any, error) { return lua.Find(ctx, f, "q", "a", "a:1", "", 10) }
	take := func(f fake) (any, error) { return lua.AcquirePermits(ctx, f, lua.AcquirePermitsParams{}) }
	give := func(f fake) (any, error) { return lua.ReleasePermits(ctx, f, lua.ReleasePermitsParams{}) }
	resize := func(f fake) (any, error) { return lua.Resize(ctx, f, lua.ResizeParams{}) }
	held := func(f fake) (any, error) { return lua.InspectPermits(ctx, f, lua.SemaphoreKeys{}, 10) }
	for _, c := range []struct {
		call  func(fake) (any, error)
		reply any
		want  any
	}{
		{acquire, int64(1_000_011), lua.AcquireReply{Status: lua.Granted, Fence: 1_000_011, Now: 1_000_011}},
		{transfer, int64(1_000_011), lua.TransferReply{Status: lua.Granted, Fence: 1_000_011, Now: 1_000_011}},
		{join, int64(1_000_011), lua.JoinReply{Status: lua.Granted, Fence: 1_000_011, Now: 1_000_011}},
		{take, int64(1_000_011), lua.JoinReply{Status: lua.Granted, Now: 1_000_011}},
		{release, "free", lua.ReleaseReply{Status: lua.Freed}},
		{leave, "free", lua.ReleaseFairReply{Status: lua.Freed}},
		{give, "free", lua.ReleasePermitsReply{Status: lua.Freed}},
		{acquire, list(-3, 12), lua.AcquireReply{Status: lua.QueueNotEmpty, Remaining: -time.Millisecond, Now: 12}},
		{acquire, list(1, 11, 12), lua.AcquireReply{Status: lua.Granted, Fence: 11, Now: 12}},
		{acquire, list(0, 11, "a:1", "about", 14), lua.AcquireReply{
			Status: lua.Busy, Remaining: 11 * time.Millisecond, Holder: "a:1", Description: "about", Now: 14,
		}},
		{acquire, list(-1, 11), lua.AcquireReply{Status: lua.Gone, Now: 11}},
		{acquire, list(-2, 11), lua.AcquireReply{Status: lua.Void, Now: 11}},
		{release, list(1, 11, 0), lua.ReleaseReply{Status: lua.Freed, Receivers: 11}},
		{release, list(1, 0, 1), lua.ReleaseReply{Status: lua.Freed, HasWaiters: true}},
		{release, list(2, 11), lua.ReleaseReply{Status: lua.StillHeld, Now: 11}},
		{release, list(-2, 11), lua.ReleaseReply{Status: lua.Void, Now: 11}},
		{transfer, list(1, 11, 12), lua.TransferReply{Status: lua.Granted, Fence: 11, Now: 12}},
		{transfer, list(-1, 11), lua.TransferReply{Status: lua.Gone, Now: 11}},
		{transfer, list(-2, 11), lua.TransferReply{Status: lua.Void, Now: 11}},
		{force, list(1, "a:1", 0), lua.ForceReleaseReply{Status: lua.Freed, Holder: "a:1"}},
		{force, list(1, "a:1", 1), lua.ForceReleaseReply{Status: lua.Freed, Holder: "a:1", HasWaiters: true}},
		{force, list(-1, "a:1"), lua.ForceReleaseReply{Status: lua.Busy, Holder: "a:1"}},
		{inspect, list("a:1", 11, 12, "about", "14", 15), lua.InspectReply{
			Holder: "a:1", Holds: 11, Remaining: 12 * time.Millisecond, Description: "about", Fence: 14, Now: 15,
		}},
		{join, list(1, 11, 12), lua.JoinReply{Status: lua.Granted, Fence: 11, Now: 12}},
		{join, list(2, place, 17, 18), lua.JoinReply{Status: lua.Queued, QueueState: inQueue, Ticket: 17, Now: 18}},
		{join, list(0, place, 17), lua.JoinReply{Status: lua.Busy, QueueState: inQueue, Now: 17}},
		{join, list(-2, 11), lua.JoinReply{Status: lua.Void, Now: 11}},
		{leave, list(1, 11, 1), lua.ReleaseFairReply{Status: lua.Freed, Receivers: 11, More: true}},
		{leave, list(2, 1, 0), lua.ReleaseFairReply{Status: lua.LeftQueue, Receivers: 1}},
		{leave, list(0, 1, 0), lua.ReleaseFairReply{Status: lua.Gone, Receivers: 1}},
		{forceFair, list(1, "a:1", 1), lua.ForceReleaseReply{Status: lua.Freed, Holder: "a:1", More: true}},
		{forceFair, list(1, "a:1", 0), lua.ForceReleaseReply{Status: lua.Freed, Holder: "a:1"}},
		{forceFair, list(0, 1), lua.ForceReleaseReply{Status: lua.NotHeld, More: true}},
		{forceFair, list(0, 0), lua.ForceReleaseReply{Status: lua.NotHeld}},
		{queue, list(11_000, 12, 13, "15", "a:1 2 14 24 about", 15, 16), lua.QueueReply{Now: 11_000, Length: 12, After: "15", Waiters: []lua.QueuedWaiter{{
			Waiter: lua.Waiter{Acquisition: "a:1", Units: 2, Heartbeat: 14 * time.Millisecond, Lease: 24 * time.Millisecond, Description: "about"},
			Ticket: 15, HeartbeatLeft: 5 * time.Millisecond,
		}}}},
		{queue, list(11_000, 12, 18, "15", "a:1 2 14 24", 15, 16), lua.QueueReply{Now: 11_000, Length: 12, After: "15", Waiters: []lua.QueuedWaiter{{
			Waiter: lua.Waiter{Acquisition: "a:1", Units: 2, Heartbeat: 14 * time.Millisecond, Lease: 24 * time.Millisecond},
			Ticket: 15, HeartbeatLeft: 7 * time.Millisecond,
		}}}},
		{queue, list(11_000, 12, 13, "15", "odd 1 2", 15, 16), lua.QueueReply{Now: 11_000, Length: 12, After: "15", Waiters: []lua.QueuedWaiter{{
			Waiter: lua.Waiter{Acquisition: "odd 1 2"}, Ticket: 15, HeartbeatLeft: 5 * time.Millisecond,
		}}}},
		{find, list(1, "a:1 2 14 24 about"), lua.FindReply{Status: lua.Queued, Waiter: lua.Waiter{
			Acquisition: "a:1", Units: 2, Heartbeat: 14 * time.Millisecond, Lease: 24 * time.Millisecond, Description: "about",
		}}},
		{find, list(2, "15"), lua.FindReply{Status: lua.Gone, After: "15"}},
		{find, list(0), lua.FindReply{Status: lua.Gone}},
		{take, list(1, 11), lua.JoinReply{Status: lua.Granted, Now: 11}},
		{take, list(2, room, 16, 17), lua.JoinReply{Status: lua.Queued, QueueState: inRoom, Ticket: 16, Now: 17}},
		{take, list(0, room, 16), lua.JoinReply{Status: lua.Busy, QueueState: inRoom, Now: 16}},
		{take, list(-2, 11), lua.JoinReply{Status: lua.Void, Now: 11}},
		{take, list(-3, 11, 12, 13), lua.JoinReply{Status: lua.LimitDiffers, QueueState: lua.QueueState{Limit: 11, Declared: 12}, Now: 13}},
		{take, list(-4, 11, 12), lua.JoinReply{Status: lua.OverLimit, QueueState: lua.QueueState{Limit: 11}, Now: 12}},
		{give, list(1, 1), lua.ReleasePermitsReply{Status: lua.Freed, More: true}},
		{give, list(2, 0), lua.ReleasePermitsReply{Status: lua.LeftQueue}},
		{give, list(0, 0), lua.ReleasePermitsReply{Status: lua.Gone}},
		{resize, list(1, 11, 1, 13), lua.ResizeReply{Status: lua.Freed, Before: 11, More: true, Now: 13}},
		{resize, list(0, 11, 12), lua.ResizeReply{Status: lua.Superseded, Stamp: 11, Now: 12}},
		{resize, list(-2, 11), lua.ResizeReply{Status: lua.Void, Now: 11}},
		{held, list(11, 12, 13, 14, 15, "a:1", 16, 17, "18 x about", "a:1", 19, 20, ""), lua.InspectPermitsReply{
			Now: 11, Limit: 12, Declared: 13, InUse: 14, Waiting: 15,
			Held: []lua.HeldPermit{{Acquisition: "a:1", Units: 16 + 19, Remaining: 17 * time.Millisecond, Since: 18, Description: "about"}},
		}},
		{held, list(11, 12, 13, 14, 15, "a:1", 16, 17, "18 3 about", "a:2", 19, 20, "", "a:1", 21, 22, "18 3 about"), lua.InspectPermitsReply{
			Now: 11, Limit: 12, Declared: 13, InUse: 14, Waiting: 15,
			Held: []lua.HeldPermit{
				{Acquisition: "a:1", Units: 3, Remaining: 17 * time.Millisecond, Since: 18, Description: "about"},
				{Acquisition: "a:2", Units: 19, Remaining: 20 * time.Millisecond},
			},
		}},
	} {
		got, err := c.call(fake{c.reply})
		require.NoError(t, err, "%v", c.reply)
		require.Equal(t, c.want, got, "%v", c.reply)
	}
}

// What a batch is answered has one part for each of its members.
func TestBatchesAreAnsweredOneByOne(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	one, two, three := []any{int64(1)}, []any{int64(2), int64(-1)}, []any{int64(0), int64(1), int64(2)}
	beat := func(codes ...int64) (all []any) {
		for _, code := range codes {
			all = append(all, []any{code, int64(11)})
		}
		return all
	}
	renew := func(f fake) (any, error) { return lua.Renew(ctx, f, make([]lua.Renewal, 2)) }
	renewPermits := func(f fake) (any, error) { return lua.RenewPermits(ctx, f, 0, make([]lua.PermitRenewal, 2)) }
	beats := func(f fake) (any, error) { return lua.Heartbeats(ctx, f, 0, "c", true, make([]lua.Heartbeat, 2)) }
	beatPermits := func(f fake) (any, error) {
		return lua.PermitHeartbeats(ctx, f, 0, "c", true, make([]lua.PermitHeartbeat, 2))
	}
	renewed := []lua.RenewAnswer{lua.RenewDone, lua.RenewRefused}
	for name, c := range map[string]struct {
		call  func(fake) (any, error)
		right []any
		want  any
		wrong [][]any
	}{
		"renew":         {renew, two, renewed, [][]any{one, three}},
		"renew permits": {renewPermits, two, renewed, [][]any{one, three}},
		"beats": {beats, beat(1, 3), []lua.HeartbeatReply{{Status: lua.Granted, Fence: 11}, {Status: lua.Removed}},
			[][]any{beat(1), beat(1, 0, 0), beat(1, 9), {[]any{int64(1)}, []any{int64(0)}}}},
		"beat permits": {beatPermits, beat(0, -1), []lua.HeartbeatReply{{Status: lua.Gone}, {Status: lua.Denied}},
			[][]any{beat(1), beat(1, 0, 0), beat(1, 9)}},
		"beat permits, too many": {beatPermits, beat(4, 1), []lua.HeartbeatReply{{Status: lua.OverLimit, QueueState: lua.QueueState{Limit: 11}}, {Status: lua.Granted}},
			[][]any{{[]any{int64(4)}, []any{int64(0)}}}},
	} {
		got, err := c.call(fake{c.right})
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
		for _, reply := range c.wrong {
			_, err := c.call(fake{reply})
			var wrong *lua.ReplyError
			require.ErrorAs(t, err, &wrong, "%s: %v", name, reply)
		}
	}
	for name, call := range map[string]func(fake) (any, error){
		"none to renew": func(f fake) (any, error) { return lua.Renew(ctx, f, nil) },
		"no permits":    func(f fake) (any, error) { return lua.RenewPermits(ctx, f, 0, nil) },
		"no beats":      func(f fake) (any, error) { return lua.Heartbeats(ctx, f, 0, "c", true, nil) },
		"no waiters":    func(f fake) (any, error) { return lua.PermitHeartbeats(ctx, f, 0, "c", true, nil) },
	} {
		_, err := call(fake{errors.New("asked")})
		require.NoError(t, err, name)
	}
}

// FuzzReply puts any value that RESP can carry before every function: they
// must not panic, and what they do not know must be a ReplyError.
func FuzzReply(f *testing.F) {
	for _, seed := range [][]byte{
		{}, {'['}, {'[', 3, 'i', 1, 'I', 0, 6, 0x0a, 0x24, 0x18, 0x1e, 0x40, 0, 'I', 0, 6, 0x0a, 0x24, 0x18, 0x1e, 0x40, 0},
		{'[', 5, 'i', 0, 'i', 100, 's', 3, 'a', ':', '1', 's', 0, 'i', 9}, {'[', 2, 'i', 0xff, 'i', 9}, {'[', 1, 'i', 2},
		{'[', 2, 'i', 2, 'i', 1}, {'[', 2, 'i', 1, 's', 1, 'x'}, {'[', 6, 's', 1, 'a', 'i', 1, 'i', 100, 's', 0, 's', 1, '7', 'i', 9},
		{'n'}, {'[', 1, 'n'}, {'[', 2, 'f', 3, 'b', 1}, {'[', 1, '[', 1, '[', 0}, {'m', 'i', 1}, {'e'}, {'g'}, {'s', 2, 'O', 'K'},
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := decoder{data: data}
		value := d.value(0)
		for name, err := range ask(t, value) {
			if err == nil {
				continue
			}
			var wrong *lua.ReplyError
			require.ErrorAs(t, err, &wrong, "%s: %#v", name, value)
			_ = wrong.Error()
		}
	})
}

// decoder makes a value of the kinds that go-redis gives from bytes.
type decoder struct{ data []byte }

func (d *decoder) next() byte {
	if len(d.data) == 0 {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return b
}

func (d *decoder) value(depth int) any {
	switch d.next() {
	case 'i':
		return int64(int8(d.next()))
	case 'I':
		var n int64
		for range 8 {
			n = n<<8 | int64(d.next())
		}
		return n
	case 's':
		n := min(int(d.next()), len(d.data))
		s := string(d.data[:n])
		d.data = d.data[n:]
		return s
	case 'f':
		return []float64{0, 1, -1, math.Inf(1), math.NaN()}[d.next()%5]
	case 'b':
		return d.next()%2 == 0
	case 'g':
		return new(big.Int).Lsh(big.NewInt(1), uint(d.next()))
	case 'e':
		if depth == 0 {
			return nil // an error as a whole is not a reply to be parsed
		}
		return answered("ERR inside")
	case 'm':
		if depth > 4 {
			return nil
		}
		return map[any]any{"k": d.value(depth + 1)}
	case '[':
		if depth > 4 {
			return []any{}
		}
		list := make([]any, d.next()%8)
		for i := range list {
			list[i] = d.value(depth + 1)
		}
		return list
	}
	return nil
}

// Numbers in the queue are decimal, also where they begin with a 0.
func TestWaitersAreReadAsTheScriptsReadThem(t *testing.T) {
	t.Parallel()
	r, err := lua.Find(t.Context(), fake{[]any{int64(1), "b:1 010 020 030 me"}}, "q", "a", "b:1", "", 10)
	require.NoError(t, err)
	require.Equal(t, lua.Waiter{Acquisition: "b:1", Units: 10, Heartbeat: 20 * time.Millisecond, Lease: 30 * time.Millisecond, Description: "me"}, r.Waiter)
}
