package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/redlatch/redlatch/benchmarks/page"
)

// last reads the newest results.
func last(dir string) (*results, error) {
	file, err := page.Newest(filepath.Join(dir, "scale-*.json"))
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &results{}
	return r, json.Unmarshal(text, r)
}

// tables are the tables of the page, by their names.
func (r *results) tables() map[string]func() string {
	return map[string]func() string{
		"run": r.run, "costs": r.costsTable, "checks": r.checksTable, "one": r.oneTable, "masters": r.mastersTable,
		"choose": r.chooseTable, "memory": r.memoryTable, "messages": r.messagesTable,
	}
}

// about rounds to two digits, because the costs are not more exact than that.
func about(n float64) string {
	if n < 10 {
		return strconv.FormatFloat(n, 'g', 2, 64)
	}
	unit := math.Pow(10, math.Floor(math.Log10(n))-1)
	return page.Thousands(math.Round(n/unit) * unit)
}

func µs(n float64) string { return strconv.FormatFloat(n, 'f', 1, 64) }

func (r *results) run() string {
	return fmt.Sprintf("The figures are of one run: %s, commit %s, on %s.\n", r.Begun.Format("2006-01-02"), r.Commit, r.Machine)
}

func (r *results) costsTable() string {
	c := r.Costs
	line := func(what string, l load) []string { return []string{what, µs(l.Server), µs(l.Client)} }
	return page.Table([]string{"operation", "µs of the server", "µs of the client"},
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
	line := func(what string, m memory) []string {
		return []string{what, page.Thousands(m.Server), page.Thousands(m.Client)}
	}
	return page.Table([]string{"", "bytes of the server", "bytes of the client"},
		line("held lock", c.Hold),
		[]string{"fence that stays after the last unlock", page.Thousands(c.Fence.Server), ""},
		line("waiter, plain mutex", c.Plain.memory),
		line("waiter, fair mutex", c.Fair.memory),
	)
}

func (r *results) checksTable() string {
	all := [][]string{{"measured", "", "model", "measured", "measured/model"}}
	for _, c := range r.Checks {
		digits := func(n float64) string { return strconv.FormatFloat(n, 'f', 2, 64) }
		if c.Predicted > 20 {
			digits = func(n float64) string { return page.Thousands(n) }
		}
		all = append(all, []string{c.What, c.Unit, digits(c.Predicted), digits(c.Measured), strconv.FormatFloat(c.Measured/c.Predicted, 'f', 2, 64)})
	}
	return page.Table(all...)
}

func (r *results) oneTable() string {
	c := r.Costs
	core := share * 1e6
	return page.Table([]string{"alone, half a core of one server carries", "about"},
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
	return page.Table(all...)
}

func (r *results) messagesTable() string {
	line := func(what string, l latency) []string {
		return []string{what, fmt.Sprintf("%.2f ms", l.P50), fmt.Sprintf("%.1f ms", l.P99)}
	}
	return page.Table([]string{"from PUBLISH to the subscriber", "median", "99th percentile"},
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
			page.Thousands(w.turns), page.Thousands(w.held), page.Thousands(math.Ceil(c.load(1, w) / share)), cluster,
			about(c.memory(w)/1e6) + " MB", strconv.FormatFloat(clients, 'f', 2, 64),
		})
	}
	return page.Table(all...)
}

// memory is what the masters need if each turn is of a fresh name. A fence stays for the retention
// and up to an hour more.
func (c costs) memory(w work) float64 {
	const fences = 1.5 * 3600 // seconds, on average
	return w.held*(c.Hold.Server+c.Fence.Server) + w.turns*fences*c.Fence.Server
}
