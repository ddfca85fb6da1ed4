package main

import (
	"os"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/benchmarks/page"
)

const scalePage = "../../docs/scale.md"

// The page has the tables of the newest results.
func TestThePageHasTheTablesOfTheLastRun(t *testing.T) {
	r, err := last("../results")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(scalePage)
	if err != nil {
		t.Fatal(err)
	}
	if want := page.Fill(string(text), r.tables()); want != string(text) {
		t.Errorf("docs/scale.md differs from the last results; cd benchmarks && go run ./scale -tables. It should be:\n%s", want)
	}
	if n := strings.Count(string(text), "<!-- table: "); n != len(page.Names(string(text))) || n != len(r.tables()) {
		t.Errorf("%d tables", n)
	}
	for _, c := range r.Checks { // the model may ask for too much, but not for too little
		if ratio := c.Measured / c.Predicted; ratio < 0.5 || ratio > 1.3 {
			t.Errorf("%s, %s: the measurement is %.2f of the model", c.What, c.Unit, ratio)
		}
	}
}

func TestTheModelAddsUp(t *testing.T) {
	c := costs{Turn: load{Server: 20}, Renewal: load{Server: 10}, Cluster: load{Server: 30}, Broadcast: 2, ClusterRenewal: load{Server: 20}}
	for _, of := range []struct {
		masters int
		work    work
		want    float64
	}{
		{1, work{10_000, 0}, 0.2},
		{1, work{0, 100_000}, 0.1},
		{3, work{0, 300_000}, 0.2},
		{3, work{30_000, 0}, 0.3 + 0.1}, // ten thousand turns of its own; 30,000 messages, a third of those of five other nodes
	} {
		if got := c.load(of.masters, of.work); got < of.want-1e-9 || got > of.want+1e-9 {
			t.Errorf("%d masters, %v: %v, want %v", of.masters, of.work, got, of.want)
		}
	}
	if got := c.most(1, 0); got < 24_999 || got > 25_001 {
		t.Errorf("one master runs %v turns", got)
	}
	if c.masters(work{20_000, 0}) != 1 || c.masters(work{40_000, 0}) != 4 || c.masters(work{1e6, 0}) != 0 {
		t.Error("the number of masters")
	}
}
