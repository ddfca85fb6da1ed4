package lua

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// assemble returns a script as it is sent. Where the script includes files, it has their functions
// that the code from there to the next includes uses, and what those use in turn. It has no
// comments, which the server does not need.
func assemble(name string) (string, error) {
	text, err := sources.ReadFile(name)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	var known library
	for _, part := range splitAtIncludes(string(text)) {
		for _, include := range part.includes {
			if err := known.add(include); err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
		}
		code := withoutComments(part.code)
		for _, d := range known.take(code) {
			b.WriteString(d.code)
		}
		b.WriteString(code)
	}
	return b.String(), nil
}

// section is some include lines of a script, and the text after them.
type section struct {
	includes []string
	code     string
}

func splitAtIncludes(text string) []section {
	sections := []section{{}}
	for line := range strings.Lines(text) {
		last := &sections[len(sections)-1]
		if names, ok := strings.CutPrefix(line, "-- include "); ok {
			sections = append(sections, section{includes: strings.Fields(names)})
			continue
		}
		last.code += line
	}
	return sections
}

// library has the declarations of included files, each behind those that it uses.
type library struct {
	files        []string
	declarations []declaration
}

// declaration is a function, or a variable, at the margin of an include.
type declaration struct {
	name, code string
	taken      bool
}

// add reads an include once, behind its own includes.
func (l *library) add(include string) error {
	if slices.Contains(l.files, include) {
		return nil
	}
	l.files = append(l.files, include)
	text, err := sources.ReadFile(path.Join("include", include+".lua"))
	if err != nil {
		return err
	}
	for _, part := range splitAtIncludes(string(text)) {
		for _, other := range part.includes {
			if err := l.add(other); err != nil {
				return err
			}
		}
		if err := l.declare(part.code); err != nil {
			return fmt.Errorf("%s: %w", include, err)
		}
	}
	return nil
}

var (
	declared = regexp.MustCompile(`^local (?:function )?(\w+)`)
	word     = regexp.MustCompile(`\w+`)
)

func (l *library) declare(text string) error {
	for line := range strings.Lines(text) {
		code := withoutComments(line)
		if code == "" {
			continue
		}
		if m := declared.FindStringSubmatch(line); m != nil {
			l.declarations = append(l.declarations, declaration{name: m[1]})
		}
		if len(l.declarations) == 0 {
			return fmt.Errorf("%q declares nothing", line)
		}
		l.declarations[len(l.declarations)-1].code += code
	}
	return nil
}

// take returns what code uses and no earlier code has taken.
func (l *library) take(code string) (used []declaration) {
	words := word.FindAllString(code, -1)
	for i := len(l.declarations) - 1; i >= 0; i-- {
		d := &l.declarations[i]
		if !d.taken && slices.Contains(words, d.name) {
			d.taken = true
			used = append(used, *d)
			words = append(words, word.FindAllString(d.code, -1)...)
		}
	}
	slices.Reverse(used)
	return used
}

func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		code := strings.TrimSpace(line)
		if code != "" && !strings.HasPrefix(code, "--") {
			b.WriteString(code)
			b.WriteByte('\n')
		}
	}
	return b.String()
}
