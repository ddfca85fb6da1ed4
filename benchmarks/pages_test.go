package main

import (
	"os"
	"testing"

	"github.com/redlatch/redlatch/benchmarks/page"
)

// The pages have the tables of the newest results, and each table is on one of them.
func TestThePagesHaveTheTablesOfTheLastRun(t *testing.T) {
	run, err := last("results")
	if err != nil {
		t.Fatal(err)
	}
	tables := run.pageTables()
	found := map[string]bool{}
	for _, file := range []string{readme, performance} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if want := page.Fill(string(text), tables); want != string(text) {
			t.Errorf("%s differs from the last results; cd benchmarks && go run . -pages", file)
		}
		for _, name := range page.Names(string(text)) {
			found[name] = true
			if tables[name] == nil {
				t.Errorf("%s: no table is called %s", file, name)
			}
		}
	}
	for name := range tables {
		if !found[name] {
			t.Errorf("no page has the table %s", name)
		}
	}
}
