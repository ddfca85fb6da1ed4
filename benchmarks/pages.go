package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/benchmarks/page"
)

// The pages that have tables of a run.
const (
	readme      = "../README.md"
	performance = "../docs/performance.md"
)

// last reads the results of the newest run.
func last(dir string) (*table, error) {
	file, err := page.Newest(filepath.Join(dir, "20*.json"))
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t := &table{}
	return t, json.Unmarshal(text, t)
}

// writePages puts the tables of a run into the pages.
func (t *table) writePages() error {
	return errors.Join(page.Rewrite(readme, t.pageTables()), page.Rewrite(performance, t.pageTables()))
}

// column is a column of a table: a row of the benchmarks.
type column struct{ title, row string }

// line is a line of a table: a library.
type line struct{ title, library string }

var (
	ourLines  = []line{{"redlatch `Mutex`", "redlatch mutex"}, {"`FairMutex`", "redlatch fair"}, {"`Semaphore`", "redlatch semaphore"}}
	javaLines = []line{{"Redisson `RLock`", "RLock"}, {"`RFairLock`", "RFairLock"}, {"`RPermitExpirable-Semaphore`", "RPermitExpirableSemaphore"}}
)

// named are lines whose titles are the names of the libraries.
func named(libraries ...string) (lines []line) {
	for _, l := range libraries {
		lines = append(lines, line{l, l})
	}
	return lines
}

func (t *table) pageTables() map[string]func() string {
	floor, rivals := named("floor"), named("redsync", "bsm/redislock", "rueidislock")
	bare := named("bare calls", "bare permits")
	everything := slices.Concat(floor, ourLines, rivals, named("etcd"), javaLines)
	return map[string]func() string{
		"run": func() string {
			return fmt.Sprintf("The tables show medians of one run of `make bench`:\n%s, commit %s, on %s, with Redis %s and %s.\n",
				t.Begun.Format(time.DateOnly), t.Commit, t.Machine, t.Versions["redis"], t.Versions["go"])
		},
		"uncontended": func() string {
			return page.Table(t.grid("library", everything, []column{
				{"one goroutine", "alone"}, {"64 goroutines, own names", "own names, 64"}, {"512, own names", "own names, 512"},
			}, rateAndWait)...)
		},
		"cost": func() string { return t.costs(slices.Concat(floor, ourLines, rivals)) },
		"pipelined": func() string {
			return page.Table(t.grid("library", slices.Concat(floor, bare[:1], ourLines, rivals[:2]), []column{{"64 goroutines, own names", "own names, 64, AutoPipeline"}}, rateAndWait)...)
		},
		"limits": t.limits,
		"contended": func() string {
			return page.Table(t.grid("library", slices.Concat(ourLines, rivals, named("etcd"), javaLines[:2]), []column{
				{"64 goroutines", "one name, 64"}, {"4 processes × 16", "one name, 4 × 16"}, {"4 × 16, 1 ms of work", "one name, 4 × 16, 1 ms"},
				{"8 × 8, 1 ms of work", "one name, 8 × 8, 1 ms"}, {"4 × 1", "one name, 4 × 1"},
			}, rateWaitAndJain)...)
		},
		"queues": func() string {
			return page.Table(t.grid("library", slices.Concat(ourLines[1:], javaLines[1:]), []column{
				{"10 goroutines in a fair queue", "fair hand-over, 10"}, {"64 goroutines, 8 permits", "permits, 8 of 64"},
			}, rateAndWait)...)
		},
		"far": func() string {
			return page.Table(t.grid("library", slices.Concat(floor, ourLines, rivals, javaLines), []column{
				{"one goroutine, 1 ms away", "alone, 1 ms away"}, {"64 goroutines, 1 ms away", "own names, 64, 1 ms away"},
				{"one goroutine, cluster", "alone, cluster"}, {"64 goroutines, cluster", "own names, 64, cluster"},
			}, rate)...)
		},
		"speed": func() string {
			return page.Table(transposed(t.grid("", slices.Concat(ourLines[:1], floor, rivals, javaLines[:1]), []column{
				{"one goroutine", "alone"}, {"64 goroutines, each with its own name", "own names, 64"}, {"the same, with go-redis' AutoPipeline", "own names, 64, AutoPipeline"},
				{"64 goroutines, one name", "one name, 64"}, {"4 processes × 16, one name, 1 ms of work", "one name, 4 × 16, 1 ms"},
			}, rateAndWait))...)
		},
	}
}

// limits compares redlatch, and the calls that it makes without any logic, with the floor and with
// the fastest other library.
func (t *table) limits() string {
	all := [][]string{{"work", "", "redlatch", "bare calls", "divided by"}}
	for _, l := range []struct {
		work, row   string
		line        line
		bare        string
		withTheBest bool
	}{
		{"one goroutine", "alone", ourLines[0], "bare calls", false},
		{"", "alone", ourLines[1], "", false},
		{"", "alone", ourLines[2], "bare permits", false},
		{"64 goroutines, own names", "own names, 64", ourLines[0], "bare calls", true},
		{"the same, AutoPipeline", "own names, 64, AutoPipeline", ourLines[0], "bare calls", false},
		{"one name, 64 goroutines", "one name, 64", ourLines[0], "bare calls", true},
		{"the same, 1 ms of work", "one name, 64, 1 ms", ourLines[0], "bare calls", true},
		{"4 processes × 16, 1 ms of work", "one name, 4 × 16, 1 ms", ourLines[0], "", true},
	} {
		of, best := t.references(l.row)
		name := "the floor"
		if l.withTheBest {
			of, name = best, "the fastest other library"
		}
		share := func(m measured) string {
			n, _ := m.median(turns)
			return ratio(n, of)
		}
		all = append(all, []string{l.work, l.line.title, t.cell(l.line.library, l.row, share), t.cell(l.bare, l.row, share), name})
	}
	return page.Table(all...)
}

// cell formats a cell with figure. It is empty if the run did not measure it.
func (t *table) cell(library, row string, figure func(measured) string) string {
	for _, m := range t.Cells {
		if m.Library == library && m.Row == row {
			return figure(m)
		}
	}
	return ""
}

// grid has a line for each library.
func (t *table) grid(head string, lines []line, columns []column, figure func(measured) string) [][]string {
	all := [][]string{{head}}
	for _, c := range columns {
		all[0] = append(all[0], c.title)
	}
	for _, l := range lines {
		cells := []string{l.title}
		for _, c := range columns {
			cells = append(cells, t.cell(l.library, c.row, figure))
		}
		all = append(all, cells)
	}
	return all
}

// transposed makes lines of the columns.
func transposed(all [][]string) [][]string {
	out := make([][]string, len(all[0]))
	for _, cells := range all {
		for i, text := range cells {
			out[i] = append(out[i], text)
		}
	}
	return out
}

// costs has a line for each library, and a column for each cost of a turn of one goroutine.
func (t *table) costs(lines []line) string {
	all := [][]string{{"library", "Redis commands", "script µs", "server CPU µs", "client CPU µs", "allocations"}}
	for _, l := range lines {
		cells := []string{l.title}
		for _, c := range []struct {
			digits int
			of     func(outcome) float64
		}{
			{0, func(o outcome) float64 { return o.Commands }},
			{1, func(o outcome) float64 { return o.ScriptTime }},
			{0, func(o outcome) float64 { return o.ServerCPU }},
			{0, func(o outcome) float64 { return o.ClientCPU }},
			{0, func(o outcome) float64 { return o.Allocs }},
		} {
			cells = append(cells, t.cell(l.library, "alone", func(m measured) string {
				n, _ := m.median(c.of)
				return strconv.FormatFloat(n, 'f', c.digits, 64)
			}))
		}
		all = append(all, cells)
	}
	return page.Table(all...)
}

func rate(m measured) string {
	n, _ := m.median(turns)
	return page.Thousands(n)
}

func rateAndWait(m measured) string {
	µs, _ := m.median(func(o outcome) float64 { return o.WaitP99 })
	ms := page.Thousands(µs / 1000)
	if µs < 100_000 {
		ms = strconv.FormatFloat(µs/1000, 'f', 1, 64)
	}
	return rate(m) + "; " + ms + " ms"
}

func rateWaitAndJain(m measured) string {
	jain, _ := m.median(func(o outcome) float64 { return o.Jain })
	return rateAndWait(m) + "; " + strconv.FormatFloat(jain, 'f', 2, 64)
}
