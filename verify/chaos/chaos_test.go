//go:build unix

package chaos_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

var (
	scaleFlag  = flag.String("scale", "tiny", "how much each row does: tiny, short, full, or times for the rows that measure time")
	rowsFlag   = flag.String("rows", "", "regular expression of the rows to run; all without")
	reportFlag = flag.String("report", "", "file to write the table to as markdown")
)

// workerEnv makes the test binary run as a worker instead of the tests. Some things happen only to
// whole processes, such as being stopped or killed.
const workerEnv = "REDLATCH_CHAOS_WORKER"

func TestMain(m *testing.M) {
	if plan, worker := os.LookupEnv(workerEnv); worker {
		if err := work(plan); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	redistest.Main(m)
}

// atOneTime is the number of rows that run together. They are busy for a tenth of their time.
const atOneTime = 3

// TestChaos runs the rows and prints the table. Most rows wait more than they compute, so some run
// at the same time. The rows that measure run one by one.
func TestChaos(t *testing.T) {
	size, known := scales[*scaleFlag]
	if !known {
		t.Fatalf("-scale=%s: there are tiny, short, full and times", *scaleFlag)
	}
	only, err := regexp.Compile(*rowsFlag)
	if err != nil {
		t.Fatal(err)
	}
	redistest.Start(t) // without a server, this reports it once
	began := time.Now()
	var rows []row
	var leftOut []string
	for _, r := range allRows() {
		switch {
		case !only.MatchString(r.name):
		case size.tiny && !r.anywhere, r.timed != size.times:
			leftOut = append(leftOut, r.name)
		default:
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("-rows=%s: no row with such a name runs at scale %s", *rowsFlag, *scaleFlag)
	}
	done := make([]result, len(rows))
	perform := func(i int) { done[i] = rows[i].perform(t, size) }
	var together errgroup.Group
	together.SetLimit(atOneTime)
	for i, r := range rows {
		if !r.alone && !r.timed {
			together.Go(func() error { perform(i); return nil })
		}
	}
	_ = together.Wait()
	for i, r := range rows {
		if r.alone || r.timed {
			perform(i)
		}
	}
	sheet := table{scale: *scaleFlag, part: *rowsFlag, rows: done, took: time.Since(began)}
	t.Log("\n" + sheet.text())
	if len(leftOut) > 0 {
		t.Logf("left out: %d rows, which run at another scale (make chaos runs all): %s",
			len(leftOut), strings.Join(leftOut, "; "))
	}
	if *reportFlag != "" {
		if err := os.WriteFile(*reportFlag, []byte(sheet.markdown()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// allRows is the table: the rows of each primitive.
func allRows() (rows []row) {
	for _, p := range primitives {
		rows = append(rows, p.rows()...)
	}
	return rows
}
