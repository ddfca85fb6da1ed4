//go:build unix

package chaos_test

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// table is the report of one run.
type table struct {
	scale, part string
	rows        []result
	took        time.Duration
}

// summary says what kind of run it was, so that nobody takes a reduced run for a full one.
func (s table) summary() string {
	bad := 0
	for _, r := range s.rows {
		if r.status != reached {
			bad++
		}
	}
	text := fmt.Sprintf("scale %s, %d rows, %d not ok, %s, %s/%s with %d cores, %s",
		s.scale, len(s.rows), bad, s.took.Round(time.Second), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), serverVersion())
	if s.part != "" {
		text += fmt.Sprintf("; only rows that match %q", s.part)
	}
	return text
}

func serverVersion() string {
	out, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		return "server unknown"
	}
	version, _, _ := strings.Cut(string(out), " sha=")
	return version
}

func (s table) text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ROW\tTARGET\tRESULT\tBITES\tTOOK")
	for _, r := range s.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.row.name, r.row.target, r.cell(), r.bites, r.took.Round(100*time.Millisecond))
	}
	_ = w.Flush()
	return b.String() + s.summary()
}

func (s table) markdown() string {
	var b strings.Builder
	b.WriteString("| row | target | result | bites |\n|---|---|---|---|\n")
	for _, r := range s.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.row.name, r.row.target, strings.ReplaceAll(r.cell(), "|", "\\|"), r.bites)
	}
	return b.String() + "\n" + s.summary() + "\n"
}

// cell is the status, the first miss if there is one, and the figures.
func (r result) cell() string {
	text := string(r.status)
	if len(r.misses) > 0 {
		first, _, _ := strings.Cut(r.misses[0], "\n")
		text += fmt.Sprintf(" (%s)", first)
	}
	if r.figures != "" {
		text += ": " + r.figures
	}
	return text
}
