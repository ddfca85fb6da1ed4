package watchdog

// heap is a binary min-heap of what is due when. It tells its elements their place, so that any of
// them can be moved or taken out in O(log n).
//
// container/heap would do the same through two interface values a step; this is on the path of
// every uncontended lock and unlock. The instant lies beside the pointer, so that comparing does
// not fetch the lease itself.
type heap[T interface{ setIndex(int) }] []slot[T]

type slot[T any] struct {
	at int64
	of T
}

func (h *heap[T]) push(at int64, of T) {
	*h = append(*h, slot[T]{at, of})
	h.up(len(*h) - 1)
}

// remove takes out the element at i.
func (h *heap[T]) remove(i int) {
	s := *h
	last := len(s) - 1
	moved := s[last]
	s[last] = slot[T]{} // or the array keeps it from the garbage collector
	*h = s[:last]
	if i != last {
		s[i] = moved
		h.settle(i)
	}
}

// fix changes the instant of the element at i.
func (h heap[T]) fix(i int, at int64) {
	h[i].at = at
	h.settle(i)
}

// first returns the earliest instant, or never.
func (h heap[T]) first() int64 {
	if len(h) == 0 {
		return never
	}
	return h[0].at
}

func (h heap[T]) settle(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h heap[T]) up(i int) {
	s := h[i]
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].at <= s.at {
			break
		}
		h.put(i, h[parent])
		i = parent
	}
	h.put(i, s)
}

// down reports whether the element moved.
func (h heap[T]) down(i int) bool {
	s, start := h[i], i
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if right := child + 1; right < len(h) && h[right].at < h[child].at {
			child = right
		}
		if s.at <= h[child].at {
			break
		}
		h.put(i, h[child])
		i = child
	}
	h.put(i, s)
	return i != start
}

func (h heap[T]) put(i int, s slot[T]) {
	h[i] = s
	s.of.setIndex(i)
}
