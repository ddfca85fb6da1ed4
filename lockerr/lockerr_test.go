package lockerr_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lockerr"
)

func TestARefusalSaysWhoHoldsTheLock(t *testing.T) {
	for _, c := range []struct {
		err  lockerr.NotAcquiredError
		text string
	}{
		{lockerr.NotAcquiredError{}, ``},
		{lockerr.NotAcquiredError{Description: "nobody", Remaining: time.Second}, ``},
		{lockerr.NotAcquiredError{Holder: "a:1"}, `: held by a:1`},
		{lockerr.NotAcquiredError{Holder: "a:1", Description: "web 1"}, `: held by a:1 (web 1)`},
		{lockerr.NotAcquiredError{Holder: "a:1", Remaining: 1}, `: held by a:1 for 1ns more unless renewed`},
		{lockerr.NotAcquiredError{Holder: "a:1", Remaining: -1}, `: held by a:1 without an end`},
		{lockerr.NotAcquiredError{Holder: "a:1", Err: errors.New("two\nlines")}, `: held by a:1: two\nlines`},
	} {
		c.err.Name = "door"
		require.EqualError(t, &c.err, `redlatch: lock "door" not acquired`+c.text)
	}
}

func TestARefusalSaysThePlaceInTheQueue(t *testing.T) {
	for text, e := range map[string]lockerr.NotAcquiredError{
		"":                      {Length: 3}, // the place is not known
		"; place 1, queue of 1": {Position: 1, Length: 1},
		"; place 2, queue of 3": {Position: 2, Length: 3},
		"; nobody waits":        {Position: 1}, // of a try, whose place would be behind the others
		"; 1 waits":             {Position: 2, Length: 1},
		"; 2 wait":              {Position: 3, Length: 2},
	} {
		require.EqualError(t, &e, `redlatch: lock "" not acquired`+text)
	}
}

func TestARefusalOfASemaphoreSaysWhatIsInUse(t *testing.T) {
	require.EqualError(t, &lockerr.NotAcquiredError{Name: "pool", Limit: 1, InUse: 1, Position: 1},
		`redlatch: semaphore "pool" not acquired: 1 of 1 in use; nobody waits`)
}

func TestErrorsMatchTheirKindAndTheirCause(t *testing.T) {
	for _, c := range []struct {
		err     error
		matches []error
	}{
		{&lockerr.NotAcquiredError{}, []error{lockerr.ErrNotAcquired}},
		{&lockerr.NotAcquiredError{Err: context.Canceled}, []error{lockerr.ErrNotAcquired, context.Canceled}},
		{&lockerr.NotReplicatedError{}, []error{lockerr.ErrNotReplicated}},
		{&lockerr.LostError{}, []error{lockerr.ErrLost}},
		{&lockerr.OpError{}, nil},
		{&lockerr.OpError{Kind: lockerr.ErrRefused}, []error{lockerr.ErrRefused}},
		{&lockerr.OpError{Err: io.EOF}, []error{io.EOF}},
		{&lockerr.OpError{Kind: lockerr.ErrClosed, Err: io.EOF}, []error{lockerr.ErrClosed, io.EOF}},
		{&lockerr.ConfigError{}, []error{lockerr.ErrConfig}},
		{&lockerr.LimitError{}, []error{lockerr.ErrConfig}},
	} {
		for _, match := range c.matches {
			require.ErrorIs(t, c.err, match)
		}
		if several, ok := c.err.(interface{ Unwrap() []error }); ok {
			require.Len(t, several.Unwrap(), len(c.matches), "no nil is among them")
		}
	}
}

func TestAGrantWithTooFewReplicasSaysHowManyHaveIt(t *testing.T) {
	require.EqualError(t, &lockerr.NotReplicatedError{Name: "door", Needed: 2, Acknowledged: 1},
		`redlatch: lock "door" not replicated: 1 of 2 replicas acknowledged it in time`)
	require.EqualError(t, &lockerr.NotReplicatedError{Name: "pool", IsPermit: true, Needed: 2},
		`redlatch: permit of semaphore "pool" not replicated: 0 of 2 replicas acknowledged it in time`)
}

func TestALossSaysWhichGrantItWas(t *testing.T) {
	require.EqualError(t, &lockerr.LostError{Name: "door", ID: "a:1", Reason: "it expired", Lease: time.Second, Age: 1500600 * time.Microsecond},
		`redlatch: lock "door" lost: it expired (acquisition a:1, lease 1s, age 1.5s)`)
	require.EqualError(t, &lockerr.LostError{Name: "pool", IsPermit: true, ID: "a:1", Reason: "it expired", Lease: 1500 * time.Microsecond, Age: 29_960 * time.Millisecond},
		`redlatch: permit of semaphore "pool" lost: it expired (acquisition a:1, lease 2ms, age 30s)`)
}

func TestAFailedOperationSaysWhy(t *testing.T) {
	for text, e := range map[string]lockerr.OpError{
		`redlatch: lock "door"`:                         {},
		`redlatch: lock "door": EOF`:                    {Err: io.EOF, Attempts: 1, Elapsed: time.Second},
		`redlatch: lock "door": refused by redis`:       {Kind: lockerr.ErrRefused},
		`redlatch: lock "door" again: refused by redis`: {Kind: lockerr.ErrRefused, Reentry: true},
		`redlatch: lock "door": refused by redis: a\nb`: {Kind: lockerr.ErrRefused, Err: errors.New("a\nb")},
		`redlatch: lock "door": removed (3 attempts in 250µs)`: {
			Err: errors.New("redlatch: removed"), Attempts: 3, Elapsed: 250 * time.Microsecond,
		},
	} {
		e.Op, e.Name = "lock", "door"
		require.EqualError(t, &e, text)
	}
}

func TestALimitThatDiffersSaysBothLimits(t *testing.T) {
	for text, e := range map[string]lockerr.LimitError{
		`redlatch: semaphore "pool" has a limit of 8, but this program passed 9`:                 {Requested: 9, Limit: 8, Declared: 8},
		`redlatch: semaphore "pool" has a limit of 4 (declared as 8), but this program passed 9`: {Requested: 9, Limit: 4, Declared: 8},
		`redlatch: semaphore "pool" has a limit of 0 now: 1 units can never be acquired`:         {Requested: 9, Units: 1},
		`redlatch: semaphore "pool" has a limit of 4 now: 5 units can never be acquired`:         {Requested: 9, Limit: 4, Declared: 9, Units: 5},
	} {
		e.Name = "pool"
		require.EqualError(t, &e, text)
	}
}

func TestABadValueIsShownQuotedAndCut(t *testing.T) {
	long := strings.Repeat("x", 80)
	for _, c := range []struct {
		value any
		shown string
	}{
		{0, `0`},
		{-time.Second, `-1s`},
		{nil, `<nil>`},
		{"", `""`},
		{"täg\n", `"täg\n"`},
		{"täg\u200b", `"t\u00e4g\u200b"`}, // what nobody sees shows by its number
		{long, `"` + long + `"`},
		{long + "y", `"` + long + `"… (81 bytes)`},
	} {
		require.EqualError(t, &lockerr.ConfigError{Setting: "name", Value: c.value, Reason: "must be good"}, "redlatch: name is "+c.shown+": must be good")
	}
	require.EqualError(t, &lockerr.ConfigError{Setting: "lease", Option: "WithLease", Value: 0, Reason: "must be good"}, "redlatch: lease (WithLease) is 0: must be good")
}

// Anybody with access to Redis can write there what an error shows as the holder.
func TestForeignTextIsQuotedIfItCouldDamageALog(t *testing.T) {
	stored := strings.Repeat("x", 256)
	for text, shown := range map[string]string{
		"täg 1":        "täg 1",
		stored:         stored,
		stored + "x":   `"` + stored[:80] + `"… (257 bytes)`,
		"a\nb":         `"a\nb"`,
		`say "please"`: `"say \"please\""`,
		"a\u2800b":     `"a\u2800b"`, // looks like a space, and counts as printable
	} {
		require.EqualError(t, &lockerr.NotAcquiredError{Name: "door", Holder: text, Description: text},
			`redlatch: lock "door" not acquired: held by `+shown+" ("+shown+")")
	}
}
