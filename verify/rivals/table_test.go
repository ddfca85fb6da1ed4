package rivals_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// table is the output: a line for each row and library.
type table struct {
	rows   []row
	cells  map[string]map[string]cell // row, library
	server string
	size   scale
	took   time.Duration
}

func (s table) markdown() string {
	var b strings.Builder
	b.WriteString("| row | library | n | result | bites |\n|---|---|---|---|---|\n")
	for _, r := range s.rows {
		name := r.name
		for _, lib := range libraries {
			k := s.cells[r.name][lib.name]
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, lib.name, k.n, strings.ReplaceAll(k.result, "|", "\\|"), k.bites)
			name = ""
		}
	}
	return b.String()
}

// heading says what was compared, and on which server.
func (s table) heading() string {
	var versions []string
	for _, lib := range libraries {
		versions = append(versions, lib.version())
	}
	return fmt.Sprintf("%s; go-redis %s; %s; %s; %s/%s with %d cores, load %s; lease %v, took %s.\n"+
		"Times are those of this machine as busy as it was; counts do not depend on it, or hardly.",
		strings.Join(versions, ", "), versionOf("github.com/redis/go-redis/v9"), s.server, runtime.Version(),
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), load(), s.size.lease, s.took.Round(time.Second))
}

// load is the load of the machine, if it is known.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// A cell without bites is invalid, and says so.
func TestACellWithoutBitesIsInvalid(t *testing.T) {
	c := &course{T: t}
	c.count("of nothing", 0)
	if got := c.cell().result; !strings.HasPrefix(got, "INVALID") {
		t.Errorf("no fault was counted: %s", got)
	}
	c.bit("cuts", 0)
	if got := c.cell().result; !strings.HasPrefix(got, "INVALID") {
		t.Errorf("no fault happened: %s", got)
	}
	c.bit("cuts", 1)
	if got := c.cell().result; got != "0 of nothing" {
		t.Error(got)
	}
}
