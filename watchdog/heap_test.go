package watchdog

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type item struct {
	at int64
	i  int
}

func (it *item) setIndex(i int) { it.i = i }

func TestHeapAgainstASortedSlice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var h heap[*item]
		var model []*item
		instant := rapid.Int64Range(0, 20)
		pick := func(t *rapid.T) *item {
			if len(model) == 0 {
				t.Skip("empty")
			}
			return rapid.SampledFrom(model).Draw(t, "item")
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				it := &item{at: instant.Draw(t, "at")}
				h.push(it.at, it)
				model = append(model, it)
			},
			"fix": func(t *rapid.T) {
				it := pick(t)
				it.at = instant.Draw(t, "at")
				h.fix(it.i, it.at)
			},
			"remove": func(t *rapid.T) {
				it := pick(t)
				h.remove(it.i)
				if h[:len(h)+1][len(h)].of != nil {
					t.Fatal("what was taken out is kept from the garbage collector")
				}
				model = slices.DeleteFunc(model, func(o *item) bool { return o == it })
			},
			"": func(t *rapid.T) {
				first := never
				for _, it := range model {
					first = min(first, it.at)
					if h[it.i].of != it || h[it.i].at != it.at {
						t.Fatal("an element is not where its index says")
					}
				}
				if len(h) != len(model) || h.first() != first {
					t.Fatal("the first is not the least")
				}
			},
		})
	})
}
