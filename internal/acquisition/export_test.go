package acquisition

import "context"

// EndGoroutineInUnlock does what an Unlock does whose goroutine ends during the release. The
// background is to finish the Unlock, and begins when the test calls begin.
func (h *Hold) EndGoroutineInUnlock() (begin func(), err error) {
	if err := h.A.lockCommands(context.Background()); err != nil {
		return nil, err
	}
	if _, err := h.beginUnlock(false); err != nil {
		return nil, err
	}
	h.unlockInBackground()
	return h.A.unlockCommands, nil
}

// Contexts returns how many contexts end with the hold.
func (h *Hold) Contexts() (n int) {
	h.A.mu.Lock()
	defer h.A.mu.Unlock()
	for c := h.contexts; c != nil; c = c.next {
		n++
	}
	return n
}

// LeaveUnlock does what an Unlock does that gives up while another command is in flight. That
// command ends when the test calls end.
func (h *Hold) LeaveUnlock() (end func(), err error) {
	if err := h.A.lockCommands(context.Background()); err != nil {
		return nil, err
	}
	h.unlockInBackground()
	return h.A.unlockCommands, nil
}
