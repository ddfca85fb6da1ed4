package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// change is one generated mutant: one place of one file, with another text.
type change struct {
	path       string // of the file, from the root of the module
	scope      string // the function around it, empty outside of functions
	scopeLines [2]int // the first and the last line of a Go function
	operator   string // the operator that made it
	start, end int    // the bytes that it replaces
	text       string // the text that replaces them

	line           int      // the line where it begins, counted from 1
	minus, plus    []string // the lines that it changes, without indentation
	occurrence     int      // above 1: the same change of the same lines is in this scope before
	startInLine    int      // column in bytes, counted from 1, as in coverage profiles
	untrimmedMinus []string
	untrimmedPlus  []string
}

// apply returns the changed text.
func (c *change) apply(src string) string { return src[:c.start] + c.text + src[c.end:] }

// identity identifies a change. It has no line numbers, so it survives edits elsewhere in the file.
func (c *change) identity() string {
	var b strings.Builder
	b.WriteString(c.title())
	for _, l := range c.minus {
		b.WriteString("\n-" + l)
	}
	for _, l := range c.plus {
		b.WriteString("\n+" + l)
	}
	return b.String()
}

// title is the first line of an identity.
func (c *change) title() string {
	title := "@@ " + c.path
	if c.scope != "" {
		title += " " + c.scope
	}
	if c.occurrence > 1 {
		title += fmt.Sprintf(" #%d", c.occurrence)
	}
	return title
}

// diff shows the change for people.
func (c *change) diff() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d: %s\n%s\n", c.path, c.line, c.operator, c.title())
	for _, l := range c.untrimmedMinus {
		b.WriteString("-" + l + "\n")
	}
	for _, l := range c.untrimmedPlus {
		b.WriteString("+" + l + "\n")
	}
	return b.String()
}

// rank gives changes a random order, which is the same for the same seed. So a sample stays the
// same when other code changes.
func (c *change) rank(seed uint64) uint64 {
	var key [8]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	sum := sha256.Sum256(append(key[:], c.identity()...))
	return binary.LittleEndian.Uint64(sum[:8])
}

// complete sets the fields that identify and show a change. It drops changes that make the same
// text as another one.
func complete(src string, changes []change) []change {
	made := map[string]bool{}
	seen := map[string]int{}
	changes = slices.DeleteFunc(changes, func(c change) bool {
		text := c.apply(src)
		double := made[text] || text == src
		made[text] = true
		return double
	})
	slices.SortStableFunc(changes, func(a, b change) int { return a.start - b.start })
	for i := range changes {
		c := &changes[i]
		from := strings.LastIndexByte(src[:c.start], '\n') + 1
		to := c.end + strings.IndexByte(src[c.end:]+"\n", '\n')
		c.line = strings.Count(src[:c.start], "\n") + 1
		c.startInLine = c.start - from + 1
		c.untrimmedMinus = lines(src[from:to])
		c.untrimmedPlus = lines(src[from:c.start] + c.text + src[c.end:to])
		c.minus, c.plus = trimmed(c.untrimmedMinus), trimmed(c.untrimmedPlus)
		seen[c.identity()]++
		c.occurrence = seen[c.identity()]
	}
	return changes
}

// lines splits a text, and drops empty lines.
func lines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return strings.TrimSpace(l) == "" })
}

func trimmed(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = strings.TrimSpace(l)
	}
	return out
}
