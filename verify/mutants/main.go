package main

import (
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	var o options
	generated := flag.Bool("generate", false, "judge generated mutants, not those in the files")
	flag.StringVar(&o.pkg, "package", "", "with -generate: the directory of one package, such as lua/fair")
	flag.IntVar(&o.sample, "sample", 0, "with -generate: how many of each package; 0 for all")
	flag.Uint64Var(&o.seed, "seed", 1, "with -generate: which sample is drawn")
	flag.StringVar(&o.tests, "tests", "", "with -generate: run only the tests of this package, for a quick look")
	flag.BoolVar(&o.list, "list", false, "with -generate: show the mutants and run nothing")
	flag.DurationVar(&o.longest, "longest", 10*time.Second, "with -generate: leave out tests that take longer")
	flag.Parse()
	if err := runOrGenerate(*generated, o, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runOrGenerate(generated bool, o options, pattern string) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	removeCache, err := ownBuildCache()
	if err != nil {
		return err
	}
	defer removeCache()
	if generated {
		return generate(root, o)
	}
	return run(root, pattern)
}

// run tests every mutant of the tree with pattern in its name.
func run(root, pattern string) error {
	begun := time.Now()
	mutants, err := readAll(filepath.Join(root, "verify", "mutants", "planted"), pattern)
	if err != nil {
		return err
	}
	if err := passUnchanged(root, mutants); err != nil {
		return err
	}
	fmt.Printf("%-36s %-10s %s\n", "mutant", "", "caught by")
	survived := 0
	for i, rows := range inOrder(runtime.NumCPU(), mutants, func(m mutant) []row { return plant(root, m) }) {
		for _, r := range rows {
			fmt.Printf("%-36s %-10s %s\n", mutants[i].name, r.word(), r.text)
		}
		if slices.ContainsFunc(rows, func(r row) bool { return !r.caught }) {
			survived++
		}
	}
	fmt.Printf("%d planted, %d not caught, %v\n", len(mutants), survived, time.Since(begun).Round(time.Second))
	if survived > 0 {
		return fmt.Errorf("%d of %d mutants were not caught", survived, len(mutants))
	}
	return nil
}

func readAll(dir, pattern string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.diff"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, file := range files {
		if !strings.Contains(filepath.Base(file), pattern) {
			continue
		}
		m, err := readMutant(file)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no mutant in %s is named like %q", dir, pattern)
	}
	return all, nil
}

// passUnchanged runs all named tests without a mutant. A test that fails anyway catches nothing.
func passUnchanged(root string, mutants []mutant) error {
	var tests []test
	for _, m := range mutants {
		for _, t := range m.tests {
			if !slices.Contains(tests, t) {
				tests = append(tests, t)
			}
		}
	}
	var failed []string
	for i, r := range inOrder(runtime.NumCPU(), tests, func(t test) result { return goTest(root, t, "") }) {
		if !r.passed {
			failed = append(failed, fmt.Sprint(tests[i].pkg, " ", tests[i].pattern, ": ", r.fault, r.failed, "\n", r.output))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("without a mutant these do not pass:\n%s", strings.Join(failed, "\n"))
	}
	return nil
}

// row is one line of the table: one test with one mutant.
type row struct {
	caught bool
	text   string
}

func (r row) word() string {
	if r.caught {
		return "caught"
	}
	return "NOT CAUGHT"
}

// plant puts one mutant into the tree, and runs its tests.
func plant(root string, m mutant) []row {
	changed, err := m.apply(root)
	if err != nil {
		return []row{{false, err.Error()}}
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return []row{{false, err.Error()}}
	}
	defer os.RemoveAll(dir)
	overlay, err := layOver(root, changed, dir)
	if err != nil {
		return []row{{false, err.Error()}}
	}
	cache, err := branchBuildCache(dir)
	if err != nil {
		return []row{{false, err.Error()}}
	}
	var rows []row
	for _, t := range m.tests {
		switch r := goTest(root, t, cache, "-overlay", overlay); {
		case r.fault != "":
			rows = append(rows, row{false, fmt.Sprint(t.pkg, " ", t.pattern, ": ", r.fault)})
		case r.passed:
			rows = append(rows, row{false, fmt.Sprint(t.pkg, " ", t.pattern, " passes though ", m.breaks)})
		default:
			rows = append(rows, row{true, fmt.Sprint(t.pkg, " ", r.failed[0])})
		}
	}
	return rows
}

// inOrder runs do for atOnce items at a time, and yields the results in the order of the items.
func inOrder[T, R any](atOnce int, items []T, do func(T) R) iter.Seq2[int, R] {
	results := make([]chan R, len(items))
	for i := range results {
		results[i] = make(chan R, 1)
	}
	places := make(chan struct{}, atOnce)
	go func() {
		for i, item := range items {
			places <- struct{}{}
			go func() {
				results[i] <- do(item)
				<-places
			}()
		}
	}()
	return func(yield func(int, R) bool) {
		for i, c := range results {
			if !yield(i, <-c) {
				return
			}
		}
	}
}
