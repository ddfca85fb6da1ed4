package telemetry

import (
	"strings"
	"sync"
)

const (
	// maxNames is how many values the label of names may have. Each of them has its own series.
	maxNames = 100
	// otherName is the label of further names, and of names whose function panicked.
	otherName = "other"
)

// names maps names of locks to the values of a label.
type names struct {
	label func(name string) string // nil: there is no such label

	mu    sync.Mutex
	known map[string]bool
}

func (n *names) of(name string) (label string) {
	if name == "" {
		return "" // no lock
	}
	defer func() {
		if recover() != nil { // a function of the program; the rest of the event counts all the same
			label = otherName
		}
	}()
	label = strings.ToValidUTF8(n.label(name), "\uFFFD")
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = map[string]bool{}
	}
	if !n.known[label] {
		if len(n.known) == maxNames {
			return otherName
		}
		n.known[label] = true
	}
	return label
}
