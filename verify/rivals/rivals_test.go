package rivals_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

var (
	fullFlag   = flag.Bool("full", false, "as much as the table of README.md has")
	rowsFlag   = flag.String("rows", "", "regular expression of the rows to run; all without")
	reportFlag = flag.String("report", "", "file to write the table to")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if !*fullFlag { // cells wait and do not compute, so the number of cores does not matter
		_ = flag.Set("test.parallel", "12")
	}
	redistest.Main(m)
}

func allRows() []row {
	var rows []row
	for _, some := range [][]row{replyRows, cutOffRows, lossRows, waitingRows, blackHoleRows, historyRows} {
		rows = append(rows, some...)
	}
	return rows
}

// Every fault bites every library, and the table has every cell. The test does not judge the
// contents of the cells.
func TestRivals(t *testing.T) {
	only := regexp.MustCompile(*rowsFlag)
	sheet := table{cells: map[string]map[string]cell{}, size: tiny}
	if *fullFlag {
		sheet.size = full
	}
	s := redistest.Start(t) // without a server, this reports it once
	sheet.server = fmt.Sprintf("%s %s", s.Kind(), s.Version())
	var mu sync.Mutex
	began := time.Now()
	t.Run("rows", func(t *testing.T) {
		for _, r := range allRows() {
			if !only.MatchString(r.name) {
				continue
			}
			sheet.rows = append(sheet.rows, r)
			sheet.cells[r.name] = map[string]cell{}
			for _, lib := range libraries {
				t.Run(r.name+"/"+lib.name, func(t *testing.T) {
					if sheet.size.together {
						t.Parallel()
					}
					k := perform(t, r, lib, sheet.size)
					mu.Lock()
					defer mu.Unlock()
					sheet.cells[r.name][lib.name] = k
				})
			}
		}
	})
	sheet.took = time.Since(began)
	t.Logf("\n%s\n\n%s", sheet.heading(), sheet.markdown())
	sheet.check(t)
	if *reportFlag != "" {
		if err := os.WriteFile(*reportFlag, []byte(sheet.heading()+"\n\n"+sheet.markdown()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

func perform(t *testing.T, r row, lib library, size scale) cell {
	c := &course{T: t, lib: lib, size: size, server: redistest.Start(t)}
	r.run(c)
	return c.cell()
}

func (s table) check(t *testing.T) {
	for _, r := range s.rows {
		for _, lib := range libraries {
			switch k := s.cells[r.name][lib.name]; {
			case k.n == "" || k.n == "0" || k.result == "" || k.bites == "":
				t.Errorf("%s, %s: not in the table", r.name, lib.name)
			case regexp.MustCompile("^INVALID").MatchString(k.result):
				t.Errorf("%s, %s: %s; bites: %s", r.name, lib.name, k.result, k.bites)
			}
		}
	}
}
