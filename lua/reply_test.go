package lua_test

import (
	"context"
	"errors"
	"math"
	"math/big"
	"testing"

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
	note("release", r.Status, err, lua.Freed, lua.Kept, lua.Gone)
	x, err := lua.Transfer(ctx, f, lua.TransferParams{})
	note("transfer", x.Status, err, lua.Granted, lua.Gone, lua.Void)
	o, err := lua.ForceRelease(ctx, f, lua.ForceReleaseParams{})
	note("force", o.Status, err, lua.Freed, lua.Nobody, lua.Busy)
	n, err := lua.Renew(ctx, f, make([]lua.Renewal, 2))
	errs["renew"] = err
	if err == nil {
		require.Len(t, n, 2)
	} else {
		require.Nil(t, n)
	}
	_, errs["inspect"] = lua.Inspect(ctx, f, "l", "f")
	return errs
}

func TestAnswersThatNoScriptGivesAreErrors(t *testing.T) {
	t.Parallel()
	for _, value := range []any{
		nil, "OK", int64(1), 1.5, true, "", []any{}, []any{nil}, []any{"1"}, []any{int64(7)}, []any{int64(-7), int64(1)},
		[]any{int64(1)}, []any{1.0, int64(1), int64(1)}, []any{[]any{int64(1)}}, map[any]any{int64(1): int64(2)},
		[]any{int64(1), errors.New("x")}, []any{int64(-1)}, big.NewInt(1), redis.Nil,
	} {
		for name, err := range ask(t, value) {
			var wrong *lua.ReplyError
			require.ErrorAs(t, err, &wrong, "%s: %#v", name, value)
			require.NotEmpty(t, wrong.Error())
			fault, code := lua.Classify(err)
			require.Equal(t, lua.Refused, fault)
			require.Equal(t, "REPLY", code)
		}
	}
}

func TestErrorsOfTheServerStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	for name, err := range ask(t, answered("OOM command not allowed")) {
		require.ErrorIs(t, err, answered("OOM command not allowed"), name)
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
