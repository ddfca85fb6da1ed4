package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// made lists changes as "operator: old lines -> new lines".
func made(changes []change) (list []string) {
	for _, c := range changes {
		list = append(list, c.operator+": "+strings.Join(c.minus, "; ")+" -> "+strings.Join(c.plus, "; "))
	}
	return list
}

// goBody returns the changes of a function with these results and this body.
func goBody(t *testing.T, results, body string) []string {
	changes, err := goChanges("p/f.go", "package p\n\nfunc f(a, b int, c chan int) "+results+" {\n"+body+"\n}\n")
	require.NoError(t, err)
	return made(changes)
}

func TestGoOperators(t *testing.T) {
	for name, c := range map[string]struct {
		results, body string
		want          []string
	}{
		"a comparison moves by one, and the condition is negated": {"", "if a < b {\n}", []string{
			"condition: if a < b { -> if !(a < b) {",
			"operator: if a < b { -> if a <= b {",
		}},
		"an equality is turned round once": {"", "if a == b {\n}", []string{
			"operator: if a == b { -> if a != b {",
		}},
		"a not is taken away": {"", "for !g() {\n}", []string{
			"condition: for !g() { -> for g() {",
		}},
		"conditions of a switch without a value are negated, cases deleted": {"", "switch {\ncase a > b:\ndefault:\n}", []string{
			"case deleted: case a > b: -> ",
			"condition: case a > b: -> case !(a > b):",
			"operator: case a > b: -> case a >= b:",
			"case deleted: default: -> ",
		}},
		"one of several values of a case is deleted": {"", "switch a {\ncase b, c:\n}", []string{
			"case deleted: case b, c: -> case c:",
			"case deleted: case b, c: -> case b:",
		}},
		"cases of a select are deleted": {"", "select {\ncase <-c:\ncase c <- a:\n}", []string{
			"case deleted: case <-c: -> ",
			"case deleted: case c <- a: -> ",
		}},
		"statements are deleted, declarations are not": {"", "x := a\nx = b\ng()\nx++\nc <- a\ndefer g()\nreturn", []string{
			"statement deleted: x = b -> ",
			"statement deleted: g() -> ",
			"statement deleted: x++ -> ",
			"statement deleted: c <- a -> ",
			"statement deleted: defer g() -> ",
			"statement deleted: return -> ",
		}},
		"numbers are counted up and made zero": {"", "x := 5 + 0", []string{
			"constant: x := 5 + 0 -> x := 6 + 0",
			"constant: x := 5 + 0 -> x := 0 + 0",
			"operator: x := 5 + 0 -> x := 5 - 0",
			"constant: x := 5 + 0 -> x := 5 + 1",
		}},
		"results are made zero": {"(int, error, bool, *int)", "return a, g(), a < b, d", []string{
			"statement deleted: return a, g(), a < b, d -> ",
			"result: return a, g(), a < b, d -> return 0, g(), a < b, d",
			"result: return a, g(), a < b, d -> return a, nil, a < b, d",
			"result: return a, g(), a < b, d -> return a, g(), !(a < b), d",
			"operator: return a, g(), a < b, d -> return a, g(), a <= b, d",
			"result: return a, g(), a < b, d -> return a, g(), a < b, nil",
		}},
		"min and max, true and false take each other's place": {"", "x := min(a, b)\ny := true", []string{
			"operator: x := min(a, b) -> x := max(a, b)",
			"operator: y := true -> y := false",
		}},
		"sizes stay": {"", "x := make([]int, 0, 10)", nil},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, goBody(t, c.results, c.body)) })
	}
}

func TestConstantsThatAreOnlyComparedStay(t *testing.T) {
	changes, err := goChanges("p/f.go", "package p\n\nconst (\n\ta = iota + 1\n\tb\n)\n\nconst c = 1\n")
	require.NoError(t, err)
	require.Equal(t, []string{"constant: const c = 1 -> const c = 2", "constant: const c = 1 -> const c = 0"}, made(changes))
}

func TestLuaOperators(t *testing.T) {
	for name, c := range map[string]struct {
		src  string
		want []string
	}{
		"comparisons, connectives and conditions": {"if a < b and not c then\nend", []string{
			"condition: if a < b and not c then -> if not (a < b and not c) then",
			"operator: if a < b and not c then -> if a <= b and not c then",
			"operator: if a < b and not c then -> if a < b or not c then",
			"operator: if a < b and not c then -> if a < b and  c then",
		}},
		"an equality is turned round once": {"if a ~= b then\nend", []string{
			"operator: if a ~= b then -> if a == b then",
		}},
		"calls, assignments and returns are deleted, declarations are not": {
			"local a = f(b)\na, c = g(b)\nredis.call('DEL', KEYS[1])\nreturn a", []string{
				"statement deleted: a, c = g(b) -> ",
				"statement deleted: redis.call('DEL', KEYS[1]) -> ",
				"statement deleted: return a -> ",
			}},
		"a code that is returned is changed, its sign is not": {"return {-2, a - b}", []string{
			"statement deleted: return {-2, a - b} -> ",
			"constant: return {-2, a - b} -> return {-3, a - b}",
			"constant: return {-2, a - b} -> return {-0, a - b}",
			"operator: return {-2, a - b} -> return {-2, a + b}",
		}},
		"the place of an argument stays, a place that is counted does not": {"local a = KEYS[2] + ARGV[i * 2]", []string{
			"operator: local a = KEYS[2] + ARGV[i * 2] -> local a = KEYS[2] - ARGV[i * 2]",
			"operator: local a = KEYS[2] + ARGV[i * 2] -> local a = KEYS[2] + ARGV[i / 2]",
			"constant: local a = KEYS[2] + ARGV[i * 2] -> local a = KEYS[2] + ARGV[i * 3]",
			"constant: local a = KEYS[2] + ARGV[i * 2] -> local a = KEYS[2] + ARGV[i * 0]",
		}},
		"comments and strings stay": {"-- if a < 1\nlocal a = '1 < 2' -- 3", nil},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, made(luaChanges("lua/f.lua", c.src))) })
	}
}

func TestLuaScopes(t *testing.T) {
	changes := luaChanges("lua/f.lua", "local function f(a)\n  return a + b\nend\nlocal c = a + b\n")
	var scopes []string
	for _, c := range changes {
		scopes = append(scopes, c.title())
	}
	require.Equal(t, []string{"@@ lua/f.lua f", "@@ lua/f.lua f", "@@ lua/f.lua"}, scopes)
}

// The identity of a mutant is its function and its lines, wherever they are.
func TestAnIdentitySurvivesEditsElsewhere(t *testing.T) {
	before, err := goChanges("p/f.go", "package p\n\nfunc (f *F[T]) g() {\n\th()\n\th()\n}\n")
	require.NoError(t, err)
	after, err := goChanges("p/f.go", "package p\n\nvar x = f()\n\nfunc (f *F[T]) g() {\n\ty := 1\n\tif y > 0 {\n\t\th()\n\t}\n\th()\n}\n")
	require.NoError(t, err)
	var known []string
	for _, c := range after {
		known = append(known, c.identity())
	}
	require.Len(t, before, 2)
	require.Equal(t, "@@ p/f.go F.g\n-h()", before[0].identity())
	require.Equal(t, "@@ p/f.go F.g #2\n-h()", before[1].identity())
	require.Contains(t, known, before[0].identity())
	require.Contains(t, known, before[1].identity())
}

func TestASampleDependsOnItsSeedAlone(t *testing.T) {
	changes, err := goChanges("p/f.go", "package p\n\nfunc f() {\n\tg()\n\th()\n}\n")
	require.NoError(t, err)
	require.Equal(t, changes[0].rank(1), changes[0].rank(1))
	require.NotEqual(t, changes[0].rank(1), changes[0].rank(2))
	require.NotEqual(t, changes[0].rank(1), changes[1].rank(1))
}
