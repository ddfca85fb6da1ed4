package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// block is a piece of code that runs as a whole.
type block struct {
	Path            string
	Line, Col       int
	EndLine, EndCol int
}

func (b block) contains(path string, line, col int) bool {
	return b.Path == path && (line > b.Line || line == b.Line && col >= b.Col) &&
		(line < b.EndLine || line == b.EndLine && col < b.EndCol)
}

// measured is one test, with the time that it takes and the code that it runs.
type measured struct {
	Package string // directory
	Name    string
	Key     string // of the code that was measured
	Took    time.Duration
	Ran     []int // indices of blocks
}

// coverage says which code each test runs.
type coverage struct {
	Blocks []block
	Tests  []measured
	index  map[block]int
}

// simulation runs schedules of all primitives. It is the last resort.
const simulation = "internal/test/simulation"

// measure runs every test of the product's packages by itself. It records which code the test
// covers and how long it takes. That takes minutes, so measure keeps the result in .cache/mutants.
// It only repeats a measurement if the product or the file of the test has changed. With only, it
// uses the tests of that package alone.
func (p *product) measure(only string) (*coverage, error) {
	cache := filepath.Join(p.root, ".cache", "mutants", "coverage.json")
	if err := os.MkdirAll(filepath.Dir(cache), 0o755); err != nil {
		return nil, err
	}
	known := readCoverage(cache)
	now := &coverage{index: map[block]int{}}
	for _, dir := range p.testedPackages() {
		if only != "" && dir != strings.TrimPrefix(only, "./") {
			continue
		}
		if err := p.measurePackage(dir, known, now); err != nil {
			return nil, fmt.Errorf("measuring the tests of %s: %w", dir, err)
		}
	}
	if only != "" {
		return now, nil // the results for the other packages stay
	}
	return now, now.write(cache)
}

func (c *coverage) write(cache string) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(cache, b, 0o644)
}

func readCoverage(cache string) *coverage {
	known := &coverage{}
	if b, err := os.ReadFile(cache); err != nil || json.Unmarshal(b, known) != nil {
		return &coverage{}
	}
	return known
}

func (p *product) testedPackages() (dirs []string) {
	for _, pkg := range p.packages {
		if pkg.hasTests() {
			dirs = append(dirs, p.relative(pkg.Dir))
		}
	}
	if _, err := os.Stat(filepath.Join(p.root, simulation)); err == nil {
		dirs = append(dirs, simulation)
	}
	return dirs
}

func (p *product) measurePackage(dir string, known, now *coverage) error {
	all, err := p.namedTests(dir)
	if err != nil {
		return err
	}
	var missing []measured
	for _, t := range all {
		if i := slices.IndexFunc(known.Tests, t.isSame); i >= 0 {
			now.take(known, known.Tests[i])
		} else {
			missing = append(missing, t)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	tmp, err := os.MkdirTemp("", "coverage")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	binary := filepath.Join(tmp, "tests")
	if err := p.build(dir, binary, "", "-cover", "-coverpkg="+strings.Join(p.importPaths(), ",")); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "measuring %d tests of %s\n", len(missing), dir)
	for i, r := range inOrder(runtime.NumCPU(), missing, func(t measured) profile { return p.measureTest(t, binary) }) {
		if r.err != nil { // it catches nothing; the next run measures it again
			fmt.Fprintln(os.Stderr, "left out:", r.err)
			continue
		}
		now.add(missing[i], r)
	}
	return nil
}

func (p *product) importPaths() (paths []string) {
	for _, pkg := range p.packages {
		paths = append(paths, pkg.ImportPath)
	}
	return paths
}

// build compiles the tests of one package. The cache is a setting of branchBuildCache, or empty.
func (p *product) build(dir, binary, cache string, args ...string) error {
	args = append([]string{"test", "-c", "-vet=off", "-ldflags=-w", "-o", binary}, args...)
	cmd := exec.Command("go", append(args, importable(dir))...)
	cmd.Dir, cmd.Env = p.root, withSetting(cache)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c %s: %w\n%s", importable(dir), err, out)
	}
	return nil
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz)\w*)\(`)

// namedTests returns the tests of a package, each with a hash of everything that it is made of.
// That is the code that is not a test, and the file of the test.
func (p *product) namedTests(dir string) (tests []measured, err error) {
	code, err := p.hashCode()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(p.root, dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(append([]byte(code), text...))
		for _, m := range testFunction.FindAllSubmatch(text, -1) {
			if name := string(m[1]); name != "TestMain" {
				tests = append(tests, measured{Package: dir, Name: name, Key: hex.EncodeToString(sum[:8])})
			}
		}
	}
	return tests, nil
}

// hashCode hashes the code of the module that is not a test. It leaves out nested modules and this
// command.
func (p *product) hashCode() (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(p.root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := p.relative(name)
		if d.IsDir() {
			if rel != "." && strings.HasPrefix(d.Name(), ".") ||
				slices.Contains([]string{"verify", "benchmarks", "examples", "redlatchtest", "redlatchprom", "redlatchotel"}, rel) {
				return fs.SkipDir
			}
			return nil
		}
		if ext := path.Ext(rel); ext != ".go" && ext != ".lua" || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		fmt.Fprintf(sum, "%s\n%s\n", rel, text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

// profile is the result of a run of one test.
type profile struct {
	took   time.Duration
	blocks []counted
	err    error
}

// counted is a block of a coverage profile.
type counted struct {
	block
	ran bool
}

// measureTest runs one test alone. A test that fails without a mutant catches nothing.
func (p *product) measureTest(t measured, binary string) profile {
	file := binary + "." + t.Name
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	args := []string{"-test.run", "^" + t.Name + "$", "-test.coverprofile", file}
	cmd := exec.CommandContext(ctx, binary, append(args, p.flags(t.Package)...)...)
	cmd.Dir = filepath.Join(p.root, t.Package)
	begun := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return profile{err: fmt.Errorf("%s does not pass without a mutant: %w\n%s", t.Name, err, out)}
	}
	took := time.Since(begun).Round(time.Millisecond)
	text, err := os.ReadFile(file)
	if err != nil {
		return profile{err: fmt.Errorf("the coverage of %s: %w", t.Name, err)}
	}
	return profile{took: took, blocks: p.readProfile(text)}
}

func (t measured) isSame(other measured) bool {
	return t.Package == other.Package && t.Name == other.Name && t.Key == other.Key
}

func (c *coverage) add(t measured, r profile) {
	t.Took = r.took
	for _, b := range r.blocks {
		if i := c.blockIndex(b.block); b.ran {
			t.Ran = append(t.Ran, i)
		}
	}
	c.Tests = append(c.Tests, t)
}

// take copies a test from an earlier measurement.
func (c *coverage) take(from *coverage, t measured) {
	ran := make([]int, 0, len(t.Ran))
	for _, i := range t.Ran {
		ran = append(ran, c.blockIndex(from.Blocks[i]))
	}
	t.Ran = ran
	c.Tests = append(c.Tests, t)
}

func (c *coverage) blockIndex(b block) int {
	i, ok := c.index[b]
	if !ok {
		i = len(c.Blocks)
		c.index[b] = i
		c.Blocks = append(c.Blocks, b)
	}
	return i
}

// readProfile reads lines like
// "github.com/redlatch/redlatch/lua/reply.go:28.66,29.32 2 1".
func (p *product) readProfile(text []byte) (blocks []counted) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		file, rest, _ := strings.Cut(lines.Text(), ":")
		var b counted
		var statements, count int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d",
			&b.Line, &b.Col, &b.EndLine, &b.EndCol, &statements, &count); err != nil {
			continue // the first line
		}
		b.Path, b.ran = p.fileOf(file), count > 0
		blocks = append(blocks, b)
	}
	return blocks
}

// fileOf turns an import path with a file name into a path in the module.
func (p *product) fileOf(name string) string {
	for _, pkg := range p.packages {
		if pkg.ImportPath == path.Dir(name) {
			return path.Join(p.relative(pkg.Dir), path.Base(name))
		}
	}
	return name
}

// covering returns the tests that run the code of a change and take no longer than longest, the
// quickest first.
func (c *coverage) covering(regions []region, longest time.Duration) (tests []measured) {
	wanted := map[int]bool{}
	for _, r := range regions {
		for _, i := range c.blocksOf(r) {
			wanted[i] = true
		}
	}
	for _, t := range c.Tests {
		if t.Took <= longest && slices.ContainsFunc(t.Ran, func(i int) bool { return wanted[i] }) {
			tests = append(tests, t)
		}
	}
	slices.SortStableFunc(tests, func(a, b measured) int { return int(a.Took - b.Took) })
	return tests
}

// region is where to look for covered code. It is a place. If that is in no block, as the
// expression of a case, it is the function around it, or the whole package.
type region struct {
	path               string
	line, col          int
	firstLine, endLine int // of the function; 0 outside of functions
}

func (c *coverage) blocksOf(r region) []int {
	best := -1
	var function, pkg []int
	for i, b := range c.Blocks {
		if b.contains(r.path, r.line, r.col) && (best < 0 || b.EndLine-b.Line <= c.Blocks[best].EndLine-c.Blocks[best].Line) {
			best = i
		}
		if b.Path == r.path && b.Line >= r.firstLine && b.EndLine <= r.endLine {
			function = append(function, i)
		}
		if path.Dir(b.Path) == path.Dir(r.path) {
			pkg = append(pkg, i)
		}
	}
	switch {
	case best >= 0:
		return []int{best}
	case r.endLine > 0:
		return function
	}
	return pkg
}
