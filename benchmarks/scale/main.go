package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/redlatch/redlatch/benchmarks/page"
)

// results are the measured costs, and how well the model predicts other measurements.
type results struct {
	Begun   time.Time
	Took    string
	Commit  string
	Machine string
	Costs   costs
	Checks  []check
}

// check is a prediction of the model beside its measurement.
type check struct {
	What      string
	Unit      string
	Predicted float64
	Measured  float64
}

// sizes of a run.
type sizes struct {
	turns          time.Duration // how long locks are counted
	names          int           // that are locked once
	held           int           // on one server
	heldFor        time.Duration
	waiters        int
	waitFor        time.Duration
	manyHeld       int // on three masters, with renewals
	manyLease      time.Duration
	mostHeld       int // on three masters, without
	messages       int
	nodes, atNodes int // the model is fitted to three masters and to so many, and checked with atNodes
}

func main() {
	smoke := flag.Bool("smoke", false, "everything for an instant, to see that it works; nothing is written")
	dir := flag.String("results", "results", "the directory of the results")
	file := flag.String("page", "../docs/scale.md", "the page with the tables")
	only := flag.Bool("tables", false, "measure nothing, and write the tables of the last results")
	flag.Parse()
	logging.Disable() // go-redis logs each server that was stopped
	if err := run(*smoke, *only, *dir, *file); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(smoke, only bool, dir, file string) error {
	if only {
		r, err := last(dir)
		if err != nil {
			return err
		}
		return page.Rewrite(file, r.tables())
	}
	n := sizes{
		turns: 4 * time.Second, names: 100_000, held: 100_000, heldFor: 20 * time.Second,
		waiters: 20_000, waitFor: 10 * time.Second, manyHeld: 200_000, manyLease: 90 * time.Second, mostHeld: 600_000,
		messages: 400, nodes: 9, atNodes: 6,
	}
	if smoke {
		n = sizes{
			turns: 100 * time.Millisecond, names: 1000, held: 1000, heldFor: time.Second,
			waiters: 200, waitFor: 500 * time.Millisecond, manyHeld: 3000, manyLease: 3 * time.Second, mostHeld: 3000,
			messages: 20, nodes: 4, atNodes: 3,
		}
	}
	r := &results{Begun: time.Now().UTC(), Commit: commit(), Machine: machine()}
	if err := r.measure(n); err != nil {
		return err
	}
	r.Took = time.Since(r.Begun).Round(time.Second).String()
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	if smoke {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, "scale-"+r.Begun.Format("2006-01-02T1504")+".json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return page.Rewrite(file, r.tables())
}

func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func machine() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // elsewhere the model is not known
	_, rest, _ := strings.Cut(string(text), "model name")
	name, _, _ := strings.Cut(strings.TrimLeft(rest, "\t: "), "\n")
	return fmt.Sprintf("%d × %s, %s", runtime.NumCPU(), name, runtime.Version())
}
