package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redlatch/redlatch/benchmarks/server"
)

// table is the result of a run.
type table struct {
	Begun    time.Time
	Took     string
	Commit   string
	Machine  string
	Versions map[string]string
	Cells    []measured
}

// measured is a cell with its outcomes, one for each round.
type measured struct {
	Row, Library string
	Rounds       []outcome
	Failed       []string `json:",omitempty"` // the errors of rounds that were measured again
}

func newTable(all servers) (*table, error) {
	t := &table{Begun: time.Now().UTC(), Machine: machine(), Versions: map[string]string{"go": runtime.Version()}}
	if commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		t.Commit = strings.TrimSpace(string(commit))
	}
	info, err := all.single.Nodes[0].InfoMap(context.Background(), "server").Result()
	if err != nil {
		return nil, err
	}
	t.Versions["redis"] = info["Server"]["redis_version"]
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range build.Deps {
			if m.Path == "github.com/redis/go-redis/v9" || slices.ContainsFunc(libraries, func(l library) bool { return l.module == m.Path }) {
				t.Versions[m.Path] = m.Version
			}
		}
	}
	return t, nil
}

// machine describes the processors of this machine.
func machine() string {
	model := runtime.GOARCH
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if _, name, ok := strings.Cut(lines.Text(), ": "); ok && strings.HasPrefix(lines.Text(), "model name") {
				model = name
				break
			}
		}
	}
	return fmt.Sprintf("%d × %s", runtime.NumCPU(), model)
}

// measure measures a row, one library after the other.
func (t *table) measure(r kind, s settings, all servers) error {
	first := len(t.Cells)
	for _, name := range r.libraries {
		if s.libraries.MatchString(name) {
			t.Cells = append(t.Cells, measured{Row: r.name, Library: name})
		}
	}
	for round := range cmp.Or(r.rounds, s.rounds) {
		for i := first; i < len(t.Cells); i++ {
			m := &t.Cells[i]
			l, err := byName(m.Library)
			if err != nil {
				return err
			}
			o, err := r.play(l, s, all)
			// etcd ends requests after seconds in which the machine stood still.
			for again := 1; err != nil && l.name == etcds.name && again < 3; again++ {
				m.Failed = append(m.Failed, err.Error())
				fmt.Fprintf(os.Stderr, "%s, %s, round %d, is measured again: %v\n%s\n", r.name, m.Library, round+1, err, all.etcd.Log())
				o, err = r.play(l, s, all)
			}
			if err != nil {
				return err
			}
			m.Rounds = append(m.Rounds, o)
			fmt.Fprintf(os.Stderr, "%s, %s, round %d: %.0f turns/s, p99 %.1f ms\n", r.name, m.Library, round+1, o.PerSecond, o.WaitP99/1000)
		}
	}
	return nil
}

func (r kind) play(l library, s settings, all servers) (outcome, error) {
	c := r.complete(l, s)
	on := all.of(c)
	c.Addrs = on.Addrs
	if r.monitored {
		stop, err := on.Monitor()
		if err != nil {
			return outcome{}, err
		}
		defer stop()
	}
	if r.way > 0 {
		near, stop, err := server.Relay(on.Addrs[0], r.way)
		if err != nil {
			return outcome{}, err
		}
		defer stop()
		c.Addrs = []string{near}
	}
	return play(c, l, on)
}

// median returns the median of a figure over the rounds, which of an even number is between the
// middle two. spread is half of the distance between the smallest and the largest, in parts of the
// median.
func (m measured) median(figure func(outcome) float64) (middle, spread float64) {
	var all []float64
	for _, o := range m.Rounds {
		all = append(all, figure(o))
	}
	slices.Sort(all)
	middle = (all[(len(all)-1)/2] + all[len(all)/2]) / 2
	if middle == 0 {
		return 0, 0
	}
	return middle, (all[len(all)-1] - all[0]) / 2 / middle
}

func turns(o outcome) float64 { return o.PerSecond }

// write prints the table in Markdown.
func (t *table) write(w io.Writer) error {
	fmt.Fprintf(w, "%s, commit %s, %s\n", t.Begun.Format(time.DateOnly), t.Commit, t.Machine)
	for _, row := range t.rowNames() {
		i := slices.IndexFunc(rows, func(r kind) bool { return r.name == row })
		fmt.Fprintf(w, "\n### %s\n\n%s.\n\n", row, rows[i].says)
		tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
		fmt.Fprintln(tw, "| library\t| turns/s\t| ±\t| of floor\t| of best rival\t| wait p50 ms\t| p99\t| longest\t| hand-over p50 µs\t| Jain\t| processes\t| commands\t| scripts\t| script µs\t| server µs\t| client µs\t| allocs\t| bytes\t|")
		fmt.Fprintln(tw, strings.Repeat("|---\t", 18)+"|")
		floor, best := t.references(row)
		for _, m := range t.Cells {
			if m.Row != row {
				continue
			}
			n, spread := m.median(turns)
			f := func(format string, scale float64, figure func(outcome) float64) string {
				v, _ := m.median(figure)
				if v == 0 || math.IsNaN(v) {
					return "-"
				}
				return fmt.Sprintf(format, v/scale)
			}
			fmt.Fprintf(tw, "| %s\t| %.0f\t| %.0f %%\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t|\n",
				m.Library, n, 100*spread, ratio(n, floor), ratio(n, best),
				f("%.2f", 1000, func(o outcome) float64 { return o.WaitP50 }),
				f("%.2f", 1000, func(o outcome) float64 { return o.WaitP99 }),
				f("%.1f", 1000, func(o outcome) float64 { return o.WaitMax }),
				f("%.0f", 1, func(o outcome) float64 { return o.HandedP50 }),
				f("%.2f", 1, func(o outcome) float64 { return o.Jain }),
				f("%.2f", 1, func(o outcome) float64 { return o.JainClients }),
				f("%.1f", 1, func(o outcome) float64 { return o.Commands }),
				f("%.1f", 1, func(o outcome) float64 { return o.Scripts }),
				f("%.1f", 1, func(o outcome) float64 { return o.ScriptTime }),
				f("%.1f", 1, func(o outcome) float64 { return o.ServerCPU }),
				f("%.1f", 1, func(o outcome) float64 { return o.ClientCPU }),
				f("%.0f", 1, func(o outcome) float64 { return o.Allocs }),
				f("%.0f", 1, func(o outcome) float64 { return o.Bytes }))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return t.writeKept(w)
}

// writeKept prints the rows that are not about turns.
func (t *table) writeKept(w io.Writer) error {
	for _, m := range t.Cells {
		o := m.Rounds[0]
		if o.HeapEach+o.MemoryEach == 0 {
			continue
		}
		_, err := fmt.Fprintf(w, "\n%s, %s: %.0f B of the client's heap and %.0f B of the server's memory each, %.3f cores of the client, %.3f of the server\n",
			m.Row, m.Library, o.HeapEach, o.MemoryEach, o.ClientLoad, o.ServerLoad)
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *table) rowNames() (names []string) {
	for _, m := range t.Cells {
		if !slices.Contains(names, m.Row) && m.Rounds[0].HeapEach+m.Rounds[0].MemoryEach == 0 {
			names = append(names, m.Row)
		}
	}
	return names
}

// references returns the floor and the fastest other library of a row. A value is 0 if there is
// none.
func (t *table) references(row string) (floor, best float64) {
	for _, m := range t.Cells {
		if m.Row != row {
			continue
		}
		n, _ := m.median(turns)
		l, err := byName(m.Library)
		switch {
		case err != nil:
		case m.Library == floors.name:
			floor = n
		case l.module != "":
			best = max(best, n)
		}
	}
	return floor, best
}

func ratio(n, of float64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", n/of)
}

// save writes the table as JSON, and its rounds as lines for benchstat.
func (t *table) save(path string) error {
	text, err := json.MarshalIndent(t, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".json", text, 0o644); err != nil {
		return err
	}
	var lines strings.Builder
	fmt.Fprintf(&lines, "pkg: redlatch/benchmarks\ncpu: %s\n", t.Machine)
	for _, m := range t.Cells {
		name := strings.NewReplacer(" ", "_", ",", "", "×", "x").Replace(m.Row + "/" + m.Library)
		for _, o := range m.Rounds {
			fmt.Fprintf(&lines, "Benchmark%s 1 %.1f turns/s %.1f p99-wait-µs %.2f client-µs/turn %.2f script-µs/turn %.2f redis-commands/turn %.2f allocs/turn\n",
				name, o.PerSecond, o.WaitP99, o.ClientCPU, o.ScriptTime, o.Commands, o.Allocs)
		}
	}
	return os.WriteFile(path+".txt", []byte(lines.String()), 0o644)
}
