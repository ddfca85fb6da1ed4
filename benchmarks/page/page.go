// Package page writes the tables of a run into pages of Markdown. A table of a page is between two
// comments, and the first one names it:
//
//	<!-- table: name -->
//
//	<!-- end -->
package page

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var marked = regexp.MustCompile(`(?s)(<!-- table: (\w+) -->\n).*?(<!-- end -->)`)

// Fill returns a page with new tables. A table whose name is not in tables stays as it is.
func Fill(text string, tables map[string]func() string) string {
	return marked.ReplaceAllStringFunc(text, func(old string) string {
		m := marked.FindStringSubmatch(old)
		table := tables[m[2]]
		if table == nil {
			return old
		}
		return m[1] + "\n" + table() + "\n" + m[3]
	})
}

// Names returns the names of the tables of a page, in their order.
func Names(text string) (names []string) {
	for _, m := range marked.FindAllStringSubmatch(text, -1) {
		names = append(names, m[2])
	}
	return names
}

// Rewrite replaces the tables of a file.
func Rewrite(file string, tables map[string]func() string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(Fill(string(text), tables)), 0o644)
}

// Newest returns the file of a pattern whose name is the last one.
func Newest(pattern string) (string, error) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		return "", errors.Join(err, errors.New("no file is called "+pattern))
	}
	return slices.Max(files), nil
}

// Table formats a table. The first line is its head.
func Table(lines ...[]string) string {
	var b strings.Builder
	for i, l := range lines {
		b.WriteString("| " + strings.Join(l, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(l)) + "|\n")
		}
	}
	return b.String()
}

// Thousands writes a whole number with commas.
func Thousands(n float64) string {
	s := strconv.FormatFloat(math.Round(n), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
