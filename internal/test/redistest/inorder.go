package redistest

import "sync"

// inOrder runs functions one after the other, and never makes the caller of put wait.
type inOrder struct {
	done <-chan struct{}
	more chan struct{} // signals a put; one token is enough

	mu    sync.Mutex
	steps []func()
}

func newInOrder(done <-chan struct{}) *inOrder {
	return &inOrder{done: done, more: make(chan struct{}, 1)}
}

func (o *inOrder) put(step func()) {
	o.mu.Lock()
	o.steps = append(o.steps, step)
	o.mu.Unlock()
	select {
	case o.more <- struct{}{}:
	default:
	}
}

// run runs the functions until done is closed.
func (o *inOrder) run() {
	for {
		select {
		case <-o.more:
		case <-o.done:
			return
		}
		for _, step := range o.take() {
			select {
			case <-o.done:
				return
			default:
			}
			step()
		}
	}
}

func (o *inOrder) take() []func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	steps := o.steps
	o.steps = nil
	return steps
}
