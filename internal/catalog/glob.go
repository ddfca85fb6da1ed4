package catalog

import (
	"strings"

	"github.com/redlatch/redlatch/lockerr"
)

// checkGlob refuses a pattern that ends inside of a class or after a backslash. Behind such a
// pattern, the rest of the pattern for SCAN would mean something else.
func checkGlob(pattern string) error {
	for rest := pattern; rest != ""; {
		_, width, ok := parseGlob(rest)
		if !ok {
			return &lockerr.ConfigError{Setting: "pattern", Value: pattern, Reason: `must close each "[", and must not end with a backslash`}
		}
		rest = rest[width:]
	}
	return nil
}

// matchGlob reports whether the whole text matches a pattern that checkGlob accepted. The rules are
// those of KEYS in Redis, which compares bytes: * ? [a-z] [^a] and \ before a character that means
// itself.
func matchGlob(pattern, text string) bool {
	// After a mismatch, the last star takes one byte more. Earlier stars need not.
	starPattern, starText, star := "", "", false
	for pattern != "" || text != "" {
		if strings.HasPrefix(pattern, "*") {
			pattern = pattern[1:]
			starPattern, starText, star = pattern, text, true
			continue
		}
		if pattern != "" && text != "" {
			if matches, width, _ := parseGlob(pattern); matches(text[0]) {
				pattern, text = pattern[width:], text[1:]
				continue
			}
		}
		if !star || starText == "" {
			return false
		}
		starText = starText[1:]
		pattern, text = starPattern, starText
	}
	return true
}

// parseGlob returns what the first part of a pattern matches, and its length. A star is one part.
func parseGlob(pattern string) (matches func(byte) bool, width int, ok bool) {
	switch pattern[0] {
	case '*', '?':
		return func(byte) bool { return true }, 1, true
	case '[':
		return parseClass(pattern)
	case '\\':
		if len(pattern) == 1 {
			return nil, 0, false
		}
		return func(b byte) bool { return b == pattern[1] }, 2, true
	}
	return func(b byte) bool { return b == pattern[0] }, 1, true
}

// parseClass parses [abc], [a-z] or [^a].
func parseClass(pattern string) (matches func(byte) bool, width int, ok bool) {
	var in [256]bool
	at := 1
	negated := strings.HasPrefix(pattern[at:], "^")
	if negated {
		at++
	}
	for ; at < len(pattern); at++ {
		switch c := pattern[at]; {
		case c == ']':
			return func(b byte) bool { return in[b] != negated }, at + 1, true
		case c == '\\' && at+1 < len(pattern):
			at++
			in[pattern[at]] = true
		case at+2 < len(pattern) && pattern[at+1] == '-':
			from, to := min(c, pattern[at+2]), max(c, pattern[at+2])
			for b := int(from); b <= int(to); b++ {
				in[b] = true
			}
			at += 2
		default:
			in[c] = true
		}
	}
	return nil, 0, false
}
