package acquisition

// Loss returns the error of the loss of an acquisition that was lost, and otherwise nil.
func (a *Acquisition) Loss() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != lost {
		return nil
	}
	return a.lostErr
}
