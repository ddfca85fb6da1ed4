package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// History is what all clients did, in the order in which their calls began.
type History struct {
	Ops     []Op
	Windows []Window
}

// Read makes one history from the files of several processes. It ignores a last line that was cut
// off when its process was killed.
func Read(files ...io.Reader) (History, error) {
	var all []History
	for i, f := range files {
		h, err := read(f)
		if err != nil {
			return History{}, fmt.Errorf("history: file %d: %w", i, err)
		}
		all = append(all, h)
	}
	return merge(all), nil
}

func read(f io.Reader) (History, error) {
	var h History
	at := map[int]int{} // id -> index
	for r := bufio.NewReader(f); ; {
		text, err := r.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF): // the text after the last newline was cut off
			return h, nil
		case err != nil:
			return h, err
		}
		var l line
		if err := json.Unmarshal(bytes.TrimSpace(text), &l); err != nil {
			return h, fmt.Errorf("%q: %w", text, err)
		}
		switch i, seen := at[l.ID]; {
		case l.Window != nil:
			h.Windows = append(h.Windows, *l.Window)
		case l.Op == nil:
			return h, fmt.Errorf("%q: neither op nor window", text)
		case seen:
			h.Ops[i] = *l.Op
		default:
			at[l.ID] = len(h.Ops)
			h.Ops = append(h.Ops, *l.Op)
		}
	}
}

// merge sorts several histories into one, with the last entry for each window.
func merge(parts []History) History {
	var all History
	type hold struct {
		client      int
		name, owner string
		from        int64
	}
	latest := map[hold]int{}
	for _, h := range parts {
		all.Ops = append(all.Ops, h.Ops...)
		for _, w := range h.Windows {
			id := hold{w.Client, w.Name, w.Owner, w.From}
			if i, again := latest[id]; again {
				all.Windows[i].Until = max(all.Windows[i].Until, w.Until)
				continue
			}
			latest[id] = len(all.Windows)
			all.Windows = append(all.Windows, w)
		}
	}
	slices.SortStableFunc(all.Ops, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	slices.SortStableFunc(all.Windows, func(a, b Window) int { return cmp.Compare(a.From, b.From) })
	return all
}

// ByName splits a history into one for each lock.
func (h History) ByName() map[string]History {
	parts := map[string]History{}
	for _, op := range h.Ops {
		part := parts[op.Name]
		part.Ops = append(part.Ops, op)
		parts[op.Name] = part
	}
	for _, w := range h.Windows {
		part := parts[w.Name]
		part.Windows = append(part.Windows, w)
		parts[w.Name] = part
	}
	return parts
}
