package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/redlatch/redlatch/benchmarks/server"
)

// settings of a run.
type settings struct {
	rows          *regexp.Regexp
	libraries     *regexp.Regexp
	rounds        int
	warm, measure time.Duration
	smoke         bool
	results       string // directory
}

func main() {
	var s settings
	spec := flag.String("work", "", "a cell, as JSON: measure it as one of its processes")
	only := flag.String("rows", "", "a regular expression: only these rows")
	who := flag.String("libraries", "", "a regular expression: only these libraries")
	flag.IntVar(&s.rounds, "rounds", 3, "how often each cell is measured")
	flag.DurationVar(&s.warm, "warm", 400*time.Millisecond, "how long a cell runs before it counts")
	flag.DurationVar(&s.measure, "measure", 1200*time.Millisecond, "how long a cell counts")
	flag.BoolVar(&s.smoke, "smoke", false, "each cell for an instant, to see that it works; nothing is written")
	flag.StringVar(&s.results, "results", "", "the directory to write JSON, charts and benchstat's lines to; the tables of the pages too, if nothing is left out")
	pages := flag.Bool("pages", false, "measure nothing, and draw the charts of the last results and write its tables into the pages")
	flag.Parse()
	var err error
	switch {
	case *spec != "":
		err = workMain(*spec)
	case *pages:
		var t *table
		if t, err = last("results"); err == nil {
			err = errors.Join(t.writePages(), t.draw("results"))
		}
	default:
		s.rows, err = regexp.Compile(*only)
		if err == nil {
			s.libraries, err = regexp.Compile(*who)
		}
		if err == nil {
			err = bench(s)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// bench measures the table.
func bench(s settings) error {
	if s.smoke {
		s.rounds, s.warm, s.measure = 1, 20*time.Millisecond, 60*time.Millisecond
	}
	servers, err := startServers(s)
	defer servers.stop()
	if err != nil {
		return err
	}
	begun := time.Now()
	t, err := newTable(servers)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if !s.rows.MatchString(r.name) {
			continue
		}
		if err := t.measure(r, s, servers); err != nil {
			return err
		}
	}
	t.Took = time.Since(begun).Round(time.Second).String()
	fmt.Fprintf(os.Stderr, "took %s\n", t.Took)
	if s.smoke {
		return nil
	}
	if err := t.write(os.Stdout); err != nil || s.results == "" {
		return err
	}
	err = errors.Join(t.save(filepath.Join(s.results, t.Begun.Format("2006-01-02T1504"))), t.draw(s.results))
	if err == nil && s.rows.String() == "" && s.libraries.String() == "" {
		err = t.writePages()
	}
	return err
}

// servers are the servers for the rows.
type servers struct{ single, cluster, etcd *server.Server }

func startServers(s settings) (all servers, err error) {
	if all.single, err = server.Redis(1); err != nil {
		return all, err
	}
	if all.cluster, err = server.Redis(3); err != nil {
		return all, err
	}
	if s.libraries.MatchString("etcd") {
		all.etcd, err = server.Etcd(inMemory())
	}
	return all, err
}

// inMemory returns a directory that is kept in memory, or "" if the system has none. If a disk
// stands still for seconds, clients of etcd give up, and the run ends.
func inMemory() string {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err != nil || !info.IsDir() {
		return ""
	}
	return shm
}

func (all servers) stop() {
	for _, s := range []*server.Server{all.single, all.cluster, all.etcd} {
		if s != nil {
			s.Stop()
		}
	}
}

func (all servers) of(c cell) *server.Server {
	switch {
	case c.Library == "etcd":
		return all.etcd
	case c.Cluster:
		return all.cluster
	}
	return all.single
}
