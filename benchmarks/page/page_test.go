package page_test

import (
	"testing"

	"github.com/redlatch/redlatch/benchmarks/page"
)

func TestOnlyTheNamedTablesChange(t *testing.T) {
	const before = "a\n<!-- table: one -->\nold\n<!-- end -->\nb\n<!-- table: two -->\nold\n<!-- end -->\nc\n"
	const after = "a\n<!-- table: one -->\n\n| x |\n|---|\n| 1,234 |\n\n<!-- end -->\nb\n<!-- table: two -->\nold\n<!-- end -->\nc\n"
	tables := map[string]func() string{"one": func() string { return page.Table([]string{"x"}, []string{page.Thousands(1234)}) }}
	if got := page.Fill(before, tables); got != after {
		t.Errorf("got %q", got)
	}
	if got := page.Names(before); len(got) != 2 || got[0] != "one" || got[1] != "two" {
		t.Errorf("got %q", got)
	}
}
