package fair

import "context"

// Contend lets a request contend as Lock does after it found that its owner does not hold the lock.
func Contend(ctx context.Context, m *Mutex) error {
	w := request{manager: m.manager}
	if err := m.coreOrEmpty().Begin(ctx, &w.Request); err != nil {
		return err
	}
	defer w.Close()
	_, err := w.contend(ctx)
	return err
}
