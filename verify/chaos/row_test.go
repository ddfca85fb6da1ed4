//go:build unix

package chaos_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// row is one line of the table.
type row struct {
	name     string
	target   string // in words, at full scale
	anywhere bool   // measures no time and takes little, so the ordinary suite runs it too
	alone    bool   // measures the whole process, sets its environment, or needs the processors, so no other row runs beside it
	timed    bool   // its target is a time, so it runs alone, with scale times only, on a quiet machine
	run      func(c *course)
}

// scale says how much a row does.
type scale struct {
	part  float64 // of the counts of the targets
	tiny  bool
	times bool // the rows that measure time, and no others
}

var scales = map[string]scale{
	"tiny":  {part: 1. / 500, tiny: true},
	"short": {part: 1. / 25},
	"full":  {part: 1},
	"times": {part: 1, times: true},
}

// course is one run of a row, with its results. Its methods may be called concurrently.
type course struct {
	*testing.T
	scale scale

	mu      sync.Mutex
	figures []string
	misses  []string
	sums    []sum
	bites   []sum
}

// sum is a number that grows during a row.
type sum struct {
	what   string
	n      int
	banned bool // has to be 0
}

// of is the part of a count for this scale, but no less than least.
func (c *course) of(full, least int) int {
	return max(int(math.Ceil(float64(full)*c.scale.part)), least)
}

// figure adds a measurement to the table.
func (c *course) figure(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.figures = append(c.figures, fmt.Sprintf(format, args...))
}

// miss says that the row did not reach its target.
func (c *course) miss(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.misses = append(c.misses, fmt.Sprintf(format, args...))
}

// bit adds to the count of a fault. If a row has no such count, or one that is 0, it is invalid.
func (c *course) bit(what string, n int) { c.add(&c.bites, sum{what: what, n: n}) }

// count adds to a number that the table shows.
func (c *course) count(what string, n int) { c.add(&c.sums, sum{what: what, n: n}) }

// forbid adds to a number that the table shows, and that has to be 0.
func (c *course) forbid(what string, n int) { c.add(&c.sums, sum{what: what, n: n, banned: true}) }

// never is forbid for the result of a check. It adds 1 if there is an error, and logs the error.
func (c *course) never(what string, err error) {
	if err == nil {
		c.forbid(what, 0)
		return
	}
	c.forbid(what, 1)
	c.Logf("%s: %v", what, err)
}

func (c *course) add(to *[]sum, s sum) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(*to, func(old sum) bool { return old.what == s.what })
	if i < 0 {
		*to = append(*to, s)
		return
	}
	(*to)[i].n += s.n
}

// enough demands at least want, and shows the count.
func (c *course) enough(what string, n, want int) {
	c.figure("%d %s", n, what)
	if n < want {
		c.miss("only %d %s of %d", n, what, want)
	}
}

// status of a row.
type status string

const (
	reached status = "ok"
	missed  status = "MISSED"
	invalid status = "INVALID"
	failed  status = "FAILED"
)

// result is the result of a row.
type result struct {
	row     row
	status  status
	figures string
	misses  []string
	bites   string
	took    time.Duration
}

// perform runs the row as a subtest. Every status except reached fails the subtest.
func (r row) perform(t *testing.T, size scale) (out result) {
	out = result{row: r, status: failed}
	began := time.Now()
	var c *course
	t.Run(r.name, func(t *testing.T) {
		c = &course{T: t, scale: size}
		defer func() { // also if the row ended its test
			out.judge(c)
			out.took = time.Since(began)
			t.Logf("%s; bites: %s; took %v", out.cell(), out.bites, out.took.Round(100*time.Millisecond))
			if out.status != reached {
				t.Errorf("%s: %s: %s; bites: %s", out.status, r.target, strings.Join(out.misses, "; "), out.bites)
			}
		}()
		r.run(c)
	})
	return out
}

func (out *result) judge(c *course) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out.misses = c.misses
	for _, sum := range c.sums {
		if sum.banned && sum.n != 0 {
			out.misses = append(out.misses, sum.String())
		}
	}
	out.figures = strings.Join(append(list(c.sums), c.figures...), ", ")
	out.bites = strings.Join(list(c.bites), ", ")
	switch {
	case c.Failed():
		out.status = failed
	case len(out.misses) > 0:
		out.status = missed
	case len(c.bites) == 0 || slices.ContainsFunc(c.bites, func(b sum) bool { return b.n == 0 }):
		out.status = invalid
	default:
		out.status = reached
	}
}

func (s sum) String() string { return fmt.Sprintf("%d %s", s.n, s.what) }

func list(sums []sum) (texts []string) {
	for _, s := range sums {
		texts = append(texts, s.String())
	}
	return texts
}
