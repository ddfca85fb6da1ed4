package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// result is the result of one run of go test.
type result struct {
	failed []string // tests that failed, without those that have a failed subtest
	passed bool     // the tests ran, and none failed
	output string   // the output of the tests
	fault  string   // why there is no result: no build, a time-out, no test
}

// goTest runs the tests of one package that match. A changed tree comes with args, and with a
// setting of its build cache. If the tests did not build, did not end, or do not exist, that is no
// failure of a test.
func goTest(root string, t test, cache string, args ...string) result {
	const hung, limit = "100s", 5 * time.Minute // building counts too
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args = append([]string{"test", "-json", "-count=1", "-vet=off", "-timeout", hung, "-run", t.pattern}, args...)
	cmd := exec.CommandContext(ctx, "go", append(args, t.pkg)...)
	cmd.Dir, cmd.Env = root, withSetting(cache)
	out, err := cmd.Output()
	r := read(out)
	switch {
	case r.fault != "":
	case ctx.Err() != nil:
		r.fault = "took too long"
	case err != nil && len(r.failed) == 0:
		r.fault = "no test failed, but go test did: " + lastLine(out)
	}
	return r
}

// event is a line of go test -json.
type event struct{ Action, Test, Output string }

func read(out []byte) result {
	var r result
	ran := false
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, len(out)+1)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		r.output += e.Output
		switch {
		case strings.Contains(e.Output, "panic: test timed out after"):
			r.fault = "hangs"
		case e.Action == "build-fail":
			r.fault = "does not build"
		case e.Test == "":
		case e.Action == "run":
			ran = true
		case e.Action == "fail":
			r.failed = append(r.failed, e.Test)
		}
	}
	// A parent fails with its subtest, and its event comes later.
	r.failed = slices.DeleteFunc(r.failed, func(name string) bool {
		return slices.ContainsFunc(r.failed, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
	if !ran && r.fault == "" {
		r.fault = "no such test"
	}
	r.passed = r.fault == "" && len(r.failed) == 0
	return r
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// layOver writes the changed files, and the file that makes go test use them instead of those in
// the tree. The caller removes dir.
func layOver(root string, changed map[string]string, dir string) (overlay string, err error) {
	replace := map[string]string{}
	for path, text := range changed {
		file := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, path)] = file
	}
	overlay = filepath.Join(dir, "overlay.json")
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("overlay: %w", err)
	}
	return overlay, os.WriteFile(overlay, b, 0o600)
}
