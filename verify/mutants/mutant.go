package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one fault in the library.
type mutant struct {
	name   string
	breaks string
	tests  []test
	edits  []edit
}

// test is a test that has to notice the mutant.
type test struct{ pkg, pattern string }

// edit is the change of one place in one file.
type edit struct{ path, from, to string }

// readMutant reads a file of the form that the package doc shows.
func readMutant(path string) (mutant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return mutant{}, err
	}
	m := mutant{name: strings.TrimSuffix(filepath.Base(path), ".diff")}
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if err := m.add(line); err != nil {
			return mutant{}, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
	}
	if m.breaks == "" || len(m.tests) == 0 || len(m.edits) == 0 {
		return mutant{}, fmt.Errorf("%s: needs what it breaks, a test that catches it, and a change", path)
	}
	return m, nil
}

func (m *mutant) add(line string) error {
	if path, ok := strings.CutPrefix(line, "@@ "); ok {
		m.edits = append(m.edits, edit{path: path})
		return nil
	}
	if len(m.edits) == 0 {
		return m.addHeader(line)
	}
	e := &m.edits[len(m.edits)-1]
	switch {
	case line == "": // editors remove the blank
		e.from, e.to = e.from+"\n", e.to+"\n"
	case line[0] == ' ':
		e.from, e.to = e.from+line[1:]+"\n", e.to+line[1:]+"\n"
	case line[0] == '-':
		e.from += line[1:] + "\n"
	case line[0] == '+':
		e.to += line[1:] + "\n"
	default:
		return errors.New("a line of a change begins with a blank, a minus or a plus")
	}
	return nil
}

func (m *mutant) addHeader(line string) error {
	key, value, _ := strings.Cut(line, ": ")
	switch key {
	case "breaks":
		m.breaks = value
	case "caught by":
		pkg, pattern, ok := strings.Cut(value, " ")
		if !ok {
			return errors.New("needs a package and a pattern")
		}
		m.tests = append(m.tests, test{pkg, pattern})
	case "":
	default:
		return fmt.Errorf("unknown header %q", key)
	}
	return nil
}

// apply returns the changed files. Each place has to be there exactly once.
func (m *mutant) apply(root string) (map[string]string, error) {
	changed := map[string]string{}
	for _, e := range m.edits {
		text, ok := changed[e.path]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.path))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		// Whole lines: the text to find ends with a line, and must also begin one.
		text = "\n" + text
		if n := strings.Count(text, "\n"+e.from); n != 1 || e.from == "" {
			return nil, fmt.Errorf("%s has the lines to change %d times, not once: it was changed, look at the mutant anew", e.path, n)
		}
		changed[e.path] = strings.Replace(text, "\n"+e.from, "\n"+e.to, 1)[1:]
	}
	return changed, nil
}
