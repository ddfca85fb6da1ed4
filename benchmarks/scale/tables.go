package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// last reads the newest results.
func last(dir string) (*results, error) {
	files, err := filepath.Glob(filepath.Join(dir, "scale-*.json"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, errors.New("there are no results; make scale measures them"))
	}
	text, err := os.ReadFile(slices.Max(files))
	if err != nil {
		return nil, err
	}
	r := &results{}
	return r, json.Unmarshal(text, r)
}

// writeTables replaces the tables of the page.
func writeTables(page string, r *results) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(r.fill(string(text))), 0o644)
}

var marked = regexp.MustCompile(`(?s)(<!-- table: (\w+) -->\n).*?(<!-- end -->)`)

// fill returns the page with the tables of the results. Each is between two comments, and the first names it.
func (r *results) fill(page string) string {
	tables := map[string]func() string{
		"run": r.run, "costs": r.costsTable, "checks": r.checksTable, "one": r.oneTable, "masters": r.mastersTable,
		"choose": r.chooseTable, "memory": r.memoryTable, "messages": r.messagesTable,
	}
	return marked.ReplaceAllStringFunc(page, func(old string) string {
		m := marked.FindStringSubmatch(old)
		table := tables[m[2]]
		if table == nil {
			return old
		}
		return m[1] + "\n" + table() + "\n" + m[3]
	})
}

// rows formats a table.
func rows(all ...[]string) string {
	var b strings.Builder
	for i, r := range all {
		b.WriteString("| " + strings.Join(r, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(r)) + "|\n")
		}
	}
	return b.String()
}

// thousands writes a whole number with commas.
func thousands(n float64) string {
	s := strconv.FormatFloat(math.Round(n), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// about rounds to two digits, because the costs are not more exact than that.
func about(n float64) string {
	if n < 10 {
		return strconv.FormatFloat(n, 'g', 2, 64)
	}
	unit := math.Pow(10, math.Floor(math.Log10(n))-1)
	return thousands(math.Round(n/unit) * unit)
}

func µs(n float64) string { return strconv.FormatFloat(n, 'f', 1, 64) }

func (r *results) run() string {
	return fmt.Sprintf("The figures are of one run: %s, commit %s, on %s.\n", r.Begun.Format("2006-01-02"), r.Commit, r.Machine)
}

func (r *results) costsTable() string {
	c := r.Costs
	line := func(what string, l load) []string { return []string{what, µs(l.Server), µs(l.Client)} }
	return rows([]string{"operation", "µs of the server", "µs of the client"},
		line("lock and unlock, on one server", c.Turn),
		line("lock and unlock of a name that two clients use in turn", c.HandOver),
		line("renewal of a held lock, on one server", c.Renewal),
		line("renewal of a held lock, in a cluster", c.ClusterRenewal),
		line("a second of waiting, plain mutex", c.Plain.PerSecond),
		line("a second of waiting, fair mutex", c.Fair.PerSecond),
		line("lock and unlock, in a cluster", c.Cluster),
		[]string{"its broadcast, for each other node", µs(c.Broadcast), ""},
	)
}

func (r *results) memoryTable() string {
	c := r.Costs
	line := func(what string, m memory) []string { return []string{what, thousands(m.Server), thousands(m.Client)} }
	return rows([]string{"", "bytes of the server", "bytes of the client"},
		line("held lock", c.Hold),
		[]string{"fence that stays after the last unlock", thousands(c.Fence.Server), ""},
		line("waiter, plain mutex", c.Plain.memory),
		line("waiter, fair mutex", c.Fair.memory),
	)
}

func (r *results) checksTable() string {
	all := [][]string{{"measured", "", "model", "measured", "measured/model"}}
	for _, c := range r.Checks {
		digits := func(n float64) string { return strconv.FormatFloat(n, 'f', 2, 64) }
		if c.Predicted > 20 {
			digits = func(n float64) string { return thousands(n) }
		}
		all = append(all, []string{c.What, c.Unit, digits(c.Predicted), digits(c.Measured), strconv.FormatFloat(c.Measured/c.Predicted, 'f', 2, 64)})
	}
	return rows(all...)
}

func (r *results) oneTable() string {
	c := r.Costs
	core := share * 1e6
	return rows([]string{"alone, half a core of one server carries", "about"},
		[]string{"locks and unlocks per second", about(core / c.Turn.Server)},
		[]string{"locks and unlocks per second of names that two clients use in turn", about(core / c.HandOver.Server)},
		[]string{"held locks with the default lease", about(core / c.Renewal.Server * (lease / 3).Seconds())},
		[]string{"waiters of plain mutexes", about(core / c.Plain.PerSecond.Server)},
		[]string{"waiters of fair mutexes", about(core / c.Fair.PerSecond.Server)},
	)
}

func (r *results) mastersTable() string {
	all := [][]string{{"masters", "nodes", "locks and unlocks per second", "of one server", "part of the work that is broadcast", "held locks, and no other work"}}
	one := r.Costs.most(1, 0)
	for _, n := range []int{1, 3, 6, 12, 24, 48, 100} {
		most := r.Costs.most(n, 0)
		held := share / r.Costs.load(n, work{0, 1})
		all = append(all, []string{
			strconv.Itoa(n), strconv.Itoa(nodes(n)), about(most), fmt.Sprintf("× %.1f", most/one),
			fmt.Sprintf("%.0f %%", 100*r.Costs.broadcastShare(n)), about(held),
		})
	}
	return rows(all...)
}

func (r *results) messagesTable() string {
	line := func(what string, l latency) []string {
		return []string{what, fmt.Sprintf("%.2f ms", l.P50), fmt.Sprintf("%.1f ms", l.P99)}
	}
	return rows([]string{"from PUBLISH to the subscriber", "median", "99th percentile"},
		line("both on one node", r.Costs.Near), line("on two nodes", r.Costs.Far))
}

func (r *results) chooseTable() string {
	c := r.Costs
	all := [][]string{{"locks and unlocks per second", "held locks", "single servers", "or masters of one cluster", "memory of all masters", "cores of all clients"}}
	for _, w := range []work{
		{1_000, 1_000}, {1_000, 100_000}, {10_000, 10_000}, {20_000, 100_000},
		{30_000, 100_000}, {30_000, 1_000_000}, {60_000, 100_000}, {300_000, 1_000_000},
	} {
		cluster := "no number"
		if n := c.masters(w); n == 1 {
			cluster = "none needed"
		} else if n > 0 {
			cluster = strconv.Itoa(n)
		}
		clients := (w.turns*c.Turn.Client + w.held/(lease/3).Seconds()*c.Renewal.Client) / 1e6
		all = append(all, []string{
			thousands(w.turns), thousands(w.held), thousands(math.Ceil(c.load(1, w) / share)), cluster,
			about(c.memory(w)/1e6) + " MB", strconv.FormatFloat(clients, 'f', 2, 64),
		})
	}
	return rows(all...)
}

// memory is what the masters need if each turn is of a fresh name. A fence stays for the retention and up to
// an hour more.
func (c costs) memory(w work) float64 {
	const fences = 1.5 * 3600 // seconds, on average
	return w.held*(c.Hold.Server+c.Fence.Server) + w.turns*fences*c.Fence.Server
}
