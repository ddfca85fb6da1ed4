package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/internal/test/history"
)

// Overlaps checks that holders never trusted more units of one lock at the same instant than there
// were. The limit is the largest one between the request for the last of these units and that
// instant. Windows of one grant, as of re-entries, count once. Windows that only touch do not
// overlap.
func Overlaps(windows []history.Window, limits Limits) error {
	type event struct {
		at    int64
		begin bool
		w     history.Window
	}
	var events []event
	for _, w := range windows {
		if w.From < w.Until { // else trust had ended before the client got the answer
			events = append(events, event{w.From, true, w}, event{w.Until, false, w})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int {
		if c := cmp.Compare(a.at, b.at); c != 0 || a.begin == b.begin {
			return c
		}
		if a.begin {
			return 1 // ends come first
		}
		return -1
	})
	open := map[string][]history.Window{}
	for _, e := range events {
		grant := e.w.Owner + "\x00" + e.w.Acquisition
		if e.begin {
			open[grant] = append(open[grant], e.w)
		} else if open[grant] = open[grant][1:]; len(open[grant]) == 0 {
			delete(open, grant)
		}
		asked, held := together(open)
		if most := limits(asked, e.at); held > most {
			return fmt.Errorf("%d held at one time, of %d:\n%s", held, most, describe(open))
		}
	}
	return nil
}

// together is how many units are held, and when the last of them was requested.
func together(open map[string][]history.Window) (asked int64, units int) {
	for _, windows := range open {
		asked = max(asked, windows[0].Call)
		units += max(1, windows[0].Units)
	}
	return asked, units
}

func describe(open map[string][]history.Window) string {
	var lines []string
	for _, windows := range open {
		for _, w := range windows {
			lines = append(lines, w.String())
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
