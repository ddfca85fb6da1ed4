package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
)

func window(owner string, from, until int64) history.Window {
	return history.Window{Name: "n", Owner: owner, Acquisition: owner + ":1", From: from, Until: until}
}

func TestWindows(t *testing.T) {
	second := window("a", 2, 4) // of the same chain, but another grant
	second.Acquisition = "a:2"
	three := window("b", 3, 5)
	three.Units = 3
	cases := map[string]struct {
		most    int
		windows []history.Window
		ok      bool
	}{
		"none":                                   {1, nil, true},
		"one after the other":                    {1, []history.Window{window("a", 1, 3), window("b", 4, 5)}, true},
		"touching":                               {1, []history.Window{window("b", 3, 5), window("a", 1, 3)}, true},
		"re-entered":                             {1, []history.Window{window("a", 1, 9), window("a", 2, 4), window("b", 9, 10)}, true},
		"empty":                                  {1, []history.Window{window("a", 1, 9), window("b", 5, 5)}, true},
		"over before it began":                   {1, []history.Window{window("a", 1, 9), window("b", 5, 4)}, true},
		"overlapping":                            {1, []history.Window{window("a", 1, 4), window("b", 3, 5)}, false},
		"one inside the other":                   {1, []history.Window{window("b", 2, 3), window("a", 1, 4)}, false},
		"the outer one of two, after a re-entry": {1, []history.Window{window("a", 1, 9), window("a", 2, 3), window("b", 5, 6)}, false},
		"two grants of one chain":                {1, []history.Window{window("a", 1, 3), second}, false},
		"two of two permits":                     {2, []history.Window{window("a", 1, 4), window("b", 3, 5)}, true},
		"three of two permits":                   {2, []history.Window{window("a", 1, 4), window("b", 3, 5), window("c", 3, 5)}, false},
		"four of four permits":                   {4, []history.Window{window("a", 1, 4), three}, true},
		"four of three permits":                  {3, []history.Window{window("a", 1, 4), three}, false},
	}
	for name, c := range cases {
		err := check.Overlaps(c.windows, check.Limit(c.most))
		require.Equal(t, c.ok, err == nil, "%s: %v", name, err)
	}
}

// A limit that was changed counts from the first time at which it may have been valid.
func TestWindowsUnderAChangingLimit(t *testing.T) {
	resize := func(to int, from, until int64, o history.Outcome) history.Op {
		return history.Op{Kind: history.Resize, Units: to, Call: from, Return: until, Outcome: o}
	}
	asked := func(w history.Window, at int64) history.Window { w.Call = at; return w }
	first, second := asked(window("a", 2, 9), 1), asked(window("b", 7, 8), 6)
	for name, c := range map[string]struct {
		resizes []history.Op
		ok      bool
	}{
		"never":                               {nil, false},
		"raised before":                       {[]history.Op{resize(2, 3, 4, done)}, true},
		"raised meanwhile":                    {[]history.Op{resize(2, 6, 9, done)}, true},
		"raised, perhaps":                     {[]history.Op{resize(2, 3, never, unknown)}, true},
		"raised after":                        {[]history.Op{resize(2, 8, 9, done)}, false},
		"not raised":                          {[]history.Op{resize(2, 3, 4, nothing)}, false},
		"raised, and lowered before":          {[]history.Op{resize(2, 2, 3, done), resize(1, 4, 5, done)}, false},
		"raised, and lowered meanwhile":       {[]history.Op{resize(2, 2, 3, done), resize(1, 5, 7, done)}, true},
		"raised and lowered at the same time": {[]history.Op{resize(2, 2, 4, done), resize(1, 3, 5, done)}, true},
		"lowered, perhaps":                    {[]history.Op{resize(2, 2, 3, done), resize(1, 4, never, unknown)}, true},
	} {
		err := check.Overlaps([]history.Window{first, second}, check.Limit(1, c.resizes...))
		require.Equal(t, c.ok, err == nil, "%s: %v", name, err)
	}
	// A lower limit takes nothing away, so a holder from before goes on.
	lowered := check.Limit(2, resize(1, 10, 11, done))
	both := []history.Window{asked(window("a", 2, 30), 1), asked(window("b", 4, 30), 3)}
	require.NoError(t, check.Overlaps(both, lowered))
	require.Error(t, check.Overlaps(append(both[:1], asked(window("c", 20, 30), 12)), lowered))
}

func TestFences(t *testing.T) {
	grant := func(acquisition string, from, to, fence int64) history.Op {
		op := answered("o", acquire, from, to, done, fence)
		op.Acquisition = acquisition
		return op
	}
	good := map[string][]history.Op{
		"growing":                          {grant("a", 1, 2, 10), grant("b", 3, 4, 12)},
		"granted in the other order":       {grant("a", 1, 9, 12), grant("b", 2, 8, 10)},
		"entered again after a larger one": {grant("a", 1, 2, 10), grant("b", 3, 4, 11), grant("a", 5, 6, 10)},
		"entered again":                    {grant("a", 1, 2, 10), grant("a", 3, 4, 10), grant("b", 5, 6, 11)},
		"what was not granted has none":    {grant("a", 1, 2, 10), answered("o", try, 3, 4, refused), answered("o", acquire, 3, never, unknown)},
		"a release has none":               {grant("a", 1, 2, 10), answered("o", release, 3, 4, done)},
		"asked for before the larger one":  {grant("a", 1, 2, 10), grant("b", 3, 9, 11), grant("c", 4, 5, 12)},
	}
	bad := map[string][]history.Op{
		"went back, in a grant that was entered again": {grant("b", 1, 2, 11), grant("a", 3, 4, 10), grant("a", 5, 6, 10)},
		"went back":                    {grant("a", 1, 2, 10), grant("b", 3, 4, 9)},
		"went back, others in between": {grant("a", 1, 2, 10), grant("b", 3, 40, 12), grant("c", 5, 6, 9)},
		"stood still":                  {grant("a", 1, 2, 10), grant("b", 3, 4, 10)},
		"the same for two at one time": {grant("a", 1, 9, 10), grant("b", 1, 9, 10)},
		"another one for the same":     {grant("a", 1, 2, 10), grant("a", 3, 4, 11)},
		"none":                         {grant("a", 1, 2, 0)},
		"in the order of the telling":  {grant("b", 7, 8, 11), grant("a", 1, 2, 12)},
	}
	for name, ops := range good {
		require.NoError(t, check.Fences(ops), name)
	}
	for name, ops := range bad {
		require.Error(t, check.Fences(ops), name)
	}
}
