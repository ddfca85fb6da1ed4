package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// options of go run ./verify/mutants -generate.
type options struct {
	pkg     string // only this directory
	sample  int    // at most so many for each directory; 0 for all
	seed    uint64
	tests   string // only those of this directory
	list    bool   // list them and run nothing
	longest time.Duration
}

// generator judges generated mutants.
type generator struct {
	product     *product
	coverage    *coverage
	equivalents map[string]string
	longest     time.Duration // tests that take longer are left out
	slack       time.Duration // additional time for tests

	mu      sync.Mutex
	noticed map[string]int // number of mutants that each test noticed

	// The tree that most mutants share, and the tests that were built from it.
	dir     string
	overlay string
	numbers map[string]int
	builds  map[string]func() error
}

// tally is a line of the report.
type tally struct {
	dir                                string
	generated, uncompiled, judged      int
	killed, hung, equivalent, survived int
}

// percent is the part of the mutants that tests noticed, without the equivalent ones.
func (t *tally) percent() string {
	if t.judged == t.equivalent {
		return "-"
	}
	return fmt.Sprintf("%.1f", 100*float64(t.killed+t.hung)/float64(t.judged-t.equivalent))
}

// generate judges generated mutants. It fails if one survives that is not listed as equivalent.
func generate(root string, o options) error {
	begun := time.Now()
	p, err := loadProduct(root)
	if err != nil {
		return err
	}
	equivalents, err := readEquivalents(filepath.Join(root, "verify", "mutants", "equivalent.txt"))
	if err != nil {
		return err
	}
	all, err := p.changes()
	if err != nil {
		return err
	}
	if o.pkg != "" {
		dir := strings.TrimPrefix(o.pkg, "./")
		maps.DeleteFunc(all, func(d string, _ []change) bool { return d != cmp.Or(dir, ".") })
		if len(all) == 0 {
			return fmt.Errorf("no package of the product is in %s", o.pkg)
		}
	}
	g := &generator{product: p, equivalents: equivalents, longest: o.longest, slack: 20 * time.Second}
	if !o.list {
		if g.coverage, err = p.measure(o.tests); err != nil {
			return err
		}
	}
	samples := map[string][]change{}
	tallies := map[string]*tally{}
	for dir, changes := range all {
		tallies[dir] = &tally{dir: dir, generated: len(changes)}
		if samples[dir], err = g.draw(tallies[dir], changes, o); err != nil {
			return err
		}
	}
	dirs := slices.Sorted(maps.Keys(all))
	if o.list {
		for _, dir := range dirs {
			for _, c := range samples[dir] {
				fmt.Println(c.diff())
			}
		}
		return nil
	}
	if err := g.plant(slices.Concat(slices.Collect(maps.Values(samples))...)); err != nil {
		return err
	}
	defer os.RemoveAll(g.dir)
	for _, dir := range dirs {
		if err := g.judgeAll(tallies[dir], samples[dir]); err != nil {
			return err
		}
	}
	return report(dirs, tallies, time.Since(begun))
}

// draw takes a sample of the mutants that compile.
func (g *generator) draw(t *tally, all []change, o options) (sample []change, err error) {
	slices.SortFunc(all, func(a, b change) int { return cmp.Compare(a.rank(o.seed), b.rank(o.seed)) })
	for _, c := range all {
		if o.sample > 0 && len(sample) == o.sample {
			break
		}
		ok, err := g.product.compiles(&c)
		if err != nil {
			return nil, err
		}
		if !ok {
			t.uncompiled++
			continue
		}
		sample = append(sample, c)
	}
	slices.SortFunc(sample, func(a, b change) int {
		return cmp.Or(strings.Compare(a.path, b.path), a.line-b.line)
	})
	t.judged = len(sample)
	return sample, nil
}

// plant makes the changed tree that most mutants share; see together.
func (g *generator) plant(sample []change) (err error) {
	if g.dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	files, numbers, err := g.product.together(sample)
	if err != nil {
		return err
	}
	g.numbers, g.builds = numbers, map[string]func() error{}
	g.overlay, err = layOver(g.product.root, files, g.dir)
	for _, pkg := range g.product.testedPackages() {
		g.builds[pkg] = sync.OnceValue(func() error {
			return g.product.build(pkg, binaryIn(g.dir, pkg), "", "-overlay", g.overlay)
		})
	}
	return err
}

func (g *generator) judgeAll(t *tally, sample []change) error {
	var run []change
	for _, c := range sample {
		if _, ok := g.equivalents[c.identity()]; ok {
			t.equivalent++
		} else {
			run = append(run, c)
		}
	}
	for i, v := range inOrder(runtime.NumCPU()+1, run, g.judge) {
		if v.err != nil {
			return fmt.Errorf("%s\n%w", run[i].diff(), v.err)
		}
		t.count(v, &run[i])
	}
	return nil
}

func (t *tally) count(v finding, c *change) {
	switch v.word {
	case killed:
		t.killed++
		fmt.Fprintf(os.Stderr, "%s:%d: killed by %s\n", c.path, c.line, v.by)
		return
	case hung:
		t.hung++
	case survived:
		t.survived++
	}
	fmt.Printf("%s: %s\n%s\n", strings.ToUpper(string(v.word)), v.by, c.diff())
}

func report(dirs []string, tallies map[string]*tally, took time.Duration) error {
	sum := &tally{dir: "all"}
	for _, dir := range dirs {
		t := tallies[dir]
		sum.generated += t.generated
		sum.uncompiled += t.uncompiled
		sum.judged += t.judged
		sum.killed += t.killed
		sum.hung += t.hung
		sum.equivalent += t.equivalent
		sum.survived += t.survived
	}
	fmt.Println("| package | generated | of those tried do not compile | judged | killed | hung | equivalent | survived | noticed, % |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	tallies[sum.dir] = sum
	for _, dir := range append(dirs, sum.dir) {
		t := tallies[dir]
		fmt.Printf("| `%s` | %d | %d | %d | %d | %d | %d | %d | %s |\n",
			t.dir, t.generated, t.uncompiled, t.judged, t.killed, t.hung, t.equivalent, t.survived, t.percent())
	}
	fmt.Println(took.Round(time.Second))
	if sum.survived > 0 {
		return fmt.Errorf("%d generated mutants survived that are not listed as equivalent", sum.survived)
	}
	return nil
}
