//go:build unix

package chaos_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A row is green if its fault has bitten, and nothing that is forbidden happened, and
// all that is demanded did.
func TestVerdictsOfRows(t *testing.T) {
	for name, r := range map[string]struct {
		run  func(c *course)
		want verdict
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
		require.Equal(t, r.want, out.verdict, name)
	}
}
