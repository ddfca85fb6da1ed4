package history

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// Recorder records what the clients of one process do. Its methods may be called concurrently.
type Recorder struct {
	clock Clock

	mu   sync.Mutex
	out  *json.Encoder // nil: kept in memory
	err  error
	last int
	h    History
}

// InMemory makes a recorder whose History the same process reads.
func InMemory(clock Clock) *Recorder { return &Recorder{clock: clock} }

// ToFile makes a recorder that writes lines to w, with one Write each, and keeps nothing. Read
// makes a History from them.
func ToFile(clock Clock, w io.Writer) *Recorder {
	return &Recorder{clock: clock, out: json.NewEncoder(w)}
}

// Now reads the recorder's clock.
func (r *Recorder) Now() int64 { return r.clock() }

// Call is an Op that has begun.
type Call struct {
	r  *Recorder
	id int
	op Op
}

// Begin records that op begins now, or began at its Call if that is set. The outcome is unknown
// until End.
func (r *Recorder) Begin(op Op) *Call {
	op.Outcome, op.Return = Unknown, Never
	r.mu.Lock()
	defer r.mu.Unlock()
	if op.Call == 0 {
		op.Call = r.clock()
	}
	c := &Call{r: r, id: r.last, op: op}
	r.last++
	if r.out == nil {
		r.h.Ops = append(r.h.Ops, op)
	}
	r.write(line{ID: c.id, Op: &op})
	return c
}

// Note records what is known of a call before it has returned.
func (c *Call) Note(change func(*Op)) {
	change(&c.op)
	c.keep()
}

// End records that the call has returned now, with the changes of change. An Unknown outcome stays
// open for ever, because the call may take effect later.
func (c *Call) End(change func(*Op)) Op {
	now := c.r.clock() // before waiting for the mutex, because the call has returned
	change(&c.op)
	if c.op.Outcome != Unknown {
		c.op.Return = now
	}
	c.keep()
	return c.op
}

func (c *Call) keep() {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.r.out == nil {
		c.r.h.Ops[c.id] = c.op
	}
	c.r.write(line{ID: c.id, Op: &c.op})
}

// Trust records a window. If it is recorded again with a later end, the new record replaces the
// earlier one. So a process that may be killed can report as it goes.
func (r *Recorder) Trust(w Window) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out == nil {
		r.h.Windows = append(r.h.Windows, w)
	}
	r.write(line{Window: &w})
}

// History is what a recorder in memory has recorded so far.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return merge([]History{r.h})
}

// Err is the first error of writing to the file.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// line is one line of a file: the state of an Op, or of a Window.
type line struct {
	ID     int     `json:"id,omitempty"`
	Op     *Op     `json:"op,omitempty"`
	Window *Window `json:"window,omitempty"`
}

func (r *Recorder) write(l line) {
	if r.out == nil || r.err != nil {
		return
	}
	if err := r.out.Encode(l); err != nil {
		r.err = fmt.Errorf("history: %w", err)
	}
}
