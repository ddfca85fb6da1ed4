package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// luaSwaps has the replacement for each operator or name.
var luaSwaps = map[string]string{
	"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "==",
	"+": "-", "-": "+", "*": "/", "/": "*", "and": "or", "or": "and", "not": "",
	"true": "false", "false": "true", "math.min": "math.max", "math.max": "math.min",
}

// luaToken is a word, a number, a string or an operator.
type luaToken struct {
	text  string
	start int
}

func (t luaToken) end() int { return t.start + len(t.text) }

// luaTokens also matches comments, so that they can be left out.
var luaTokens = regexp.MustCompile(`--[^\n]*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|[A-Za-z_][\w.]*|\d+|[=<>~]=|\.\.|\S`)

// luaChanges returns the generated mutants of a Lua file, including those that do not compile.
func luaChanges(path, src string) []change {
	f := luaFile{path: path, src: src}
	for _, at := range luaTokens.FindAllStringIndex(src, -1) {
		if text := src[at[0]:at[1]]; !strings.HasPrefix(text, "--") {
			f.tokens = append(f.tokens, luaToken{text, at[0]})
		}
	}
	for i := range f.tokens {
		f.visit(i)
	}
	f.statements()
	return complete(src, f.changes)
}

// luaFile collects the changes of one Lua file.
type luaFile struct {
	path    string
	src     string
	tokens  []luaToken
	changes []change
}

func (f *luaFile) add(operator string, start, end int, text string) {
	f.changes = append(f.changes, change{
		path: f.path, scope: f.scopeAt(start), operator: operator, start: start, end: end, text: text,
	})
}

var luaFunction = regexp.MustCompile(`(?m)^(?:local )?function ([\w.]+)|^end`)

// scopeAt returns the function around a place. Functions begin and end at the margin.
func (f *luaFile) scopeAt(at int) (scope string) {
	for _, m := range luaFunction.FindAllStringSubmatch(f.src[:at], -1) {
		scope = m[1] // empty for an end
	}
	return scope
}

func (f *luaFile) visit(i int) {
	t := f.tokens[i]
	if n, err := strconv.ParseInt(t.text, 10, 64); err == nil && !f.isPlace(i) {
		f.add("constant", t.start, t.end(), strconv.FormatInt(n+1, 10))
		if n != 0 {
			f.add("constant", t.start, t.end(), "0")
		}
	}
	other, ok := luaSwaps[t.text]
	if ok && !(t.text == "-" && f.isSign(i)) {
		f.add("operator", t.start, t.end(), other)
	}
	switch t.text {
	case "if", "elseif":
		f.negate(i, "then")
	case "while":
		f.negate(i, "do")
	}
}

// isPlace: KEYS[1] or ARGV[1]. Another test checks, without running anything, that these are the
// ones of the header.
func (f *luaFile) isPlace(i int) bool {
	return i >= 2 && f.tokens[i-1].text == "[" && (f.tokens[i-2].text == "KEYS" || f.tokens[i-2].text == "ARGV") &&
		f.tokens[i+1].text == "]"
}

// isSign: the minus of a negative number, and not of a difference.
func (f *luaFile) isSign(i int) bool {
	if i == 0 {
		return true
	}
	switch before := f.tokens[i-1].text; before {
	case "return", "and", "or", "not", "then", "(", "{", "[", ",", "=", "==", "~=", "<", ">", "<=", ">=", "+", "-", "*", "/", "..":
		return true
	}
	return false
}

// negate leaves out mutants that the swap of == and ~= or of a not makes anyway.
func (f *luaFile) negate(i int, until string) {
	end := i + 1
	for end < len(f.tokens) && f.tokens[end].text != until {
		end++
	}
	if end == len(f.tokens) {
		return
	}
	cond := f.tokens[i+1 : end]
	isAny := func(words ...string) bool {
		return slices.ContainsFunc(cond, func(t luaToken) bool { return slices.Contains(words, t.text) })
	}
	if !isAny("and", "or") && isAny("==", "~=", "not") {
		return
	}
	from, to := cond[0].start, cond[len(cond)-1].end()
	f.add("condition", from, to, "not ("+f.src[from:to]+")")
}

// luaStatement matches a line that is a whole statement and may be missing: a call, an assignment
// to something declared before, or a return.
var luaStatement = regexp.MustCompile(`(?m)^[ \t]*(return\b.*|[\w.]+\(.*\)|[\w.\[\], +*-]+ = .*)$`)

var luaDeclares = regexp.MustCompile(`^[ \t]*(local|if|for|while|function|else|elseif)\b`)

func (f *luaFile) statements() {
	for _, at := range luaStatement.FindAllStringSubmatchIndex(f.src, -1) {
		if !luaDeclares.MatchString(f.src[at[0]:at[1]]) {
			f.add("statement deleted", at[2], at[3], "")
		}
	}
}
