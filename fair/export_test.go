package fair

import "context"

// Contend lets a request contend as Lock does after it found that its owner does not hold the lock.
func Contend(ctx context.Context, m *Mutex) error {
	shared, err := m.coreOrEmpty().NewRequest(ctx)
	if err != nil {
		return err
	}
	defer shared.Close()
	_, err = m.wrap(shared).contend(ctx)
	return err
}
