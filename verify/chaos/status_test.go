//go:build unix

package chaos_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/history"
)

// A row reaches its target if its fault has bitten, nothing forbidden happened, and all counts were
// high enough.
func TestResultsOfRows(t *testing.T) {
	for name, r := range map[string]struct {
		run  func(c *course)
		want status
	}{
		"all well":            {func(c *course) { c.bit("bites", 1); c.forbid("overlaps", 0); c.enough("grants", 2, 2) }, reached},
		"never bitten":        {func(c *course) { c.forbid("overlaps", 0) }, invalid},
		"bitten no times":     {func(c *course) { c.bit("bites", 0) }, invalid},
		"one of two bit":      {func(c *course) { c.bit("bites", 3); c.bit("losses", 0) }, invalid},
		"something forbidden": {func(c *course) { c.bit("bites", 1); c.forbid("overlaps", 1) }, missed},
		"forbidden once of ten": {func(c *course) {
			c.bit("bites", 1)
			for i := range 10 {
				c.forbid("overlaps", i/9)
			}
		}, missed},
		"an error of a checker": {func(c *course) { c.bit("bites", 1); c.never("overlaps", errDrift) }, missed},
		"too little":            {func(c *course) { c.bit("bites", 1); c.enough("grants", 1, 2) }, missed},
		"missed and not bitten": {func(c *course) { c.miss("late") }, missed},
	} {
		c := &course{T: t, scale: scales["full"]}
		r.run(c)
		var out result
		out.judge(c)
		require.Equal(t, r.want, out.status, name)
	}
}

// A window counts until Redis forgot the lock. A grant that may be from before that counts for
// nothing. If an Unlock found the lock afterwards, the whole window counts.
func TestWindowsAreCutWhereRedisForgot(t *testing.T) {
	o := &ordeal{losses: []loss{{name: "n", from: 100, until: 110}}}
	release := func(from, to int64) map[string]bool {
		return o.given([]history.Op{{Kind: history.Release, Outcome: history.Done, Acquisition: "a", Call: from, Return: to}})
	}
	for name, c := range map[string]struct {
		from, until, asked int64
		given              map[string]bool
		want               int64
	}{
		"held when it was forgotten":      {50, 300, 40, nil, 100},
		"answered after that":             {120, 300, 40, nil, 120},
		"asked after that":                {130, 300, 120, nil, 300},
		"there to be given back":          {120, 300, 40, release(300, 301), 300},
		"given back as it was forgotten":  {50, 105, 40, release(105, 120), 100},
		"extended while it was forgotten": {50, 300, 40, release(300, 301), 300},
	} {
		w := history.Window{Name: "n", Acquisition: "a", From: c.from, Until: c.until}
		o.cut(&w, c.asked, c.given["a"])
		require.Equal(t, c.want, w.Until, name)
	}
}
