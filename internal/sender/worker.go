package sender

import (
	"context"
	"errors"
	"slices"
	"time"
)

// worker is a goroutine that calls go-redis for others.
type worker struct {
	sender *Sender
	wake   chan struct{} // capacity 1: there is something to send; closed: the worker is to end
	batch  []*command    // what it sends
	began  time.Time
}

func (w *worker) work() {
	defer w.exited()
	idle := time.NewTimer(idleFor)
	defer idle.Stop()
	for called := true; ; called = true {
		for w.sender.take(w, called) {
			called = false
			w.send()
		}
		if !w.awaitCommand(idle) {
			return
		}
	}
}

// awaitCommand waits for more to send. It reports false when the worker is to end.
func (w *worker) awaitCommand(idle *time.Timer) bool {
	idle.Reset(idleFor)
	select {
	case _, called := <-w.wake:
		return called
	case <-idle.C:
	}
	w.sender.endIdle(w)
	_, called := <-w.wake
	return called
}

// exited answers what a worker leaves behind that was ended in the middle.
func (w *worker) exited() {
	for _, c := range w.batch {
		c.answer(ErrGoexit)
	}
	w.sender.workerExited(w)
}

func (w *worker) send() {
	if len(w.batch) == 1 {
		c := w.batch[0]
		c.answer(w.sender.sendOne(c, c.cmd))
	} else {
		w.sendPipeline()
	}
	clear(w.batch)
}

// sendPipeline sends several. Each one has an answer or an error of its own. go-redis, where it
// looks at deadlines, gives up when the last of the attempts ends.
func (w *worker) sendPipeline() {
	last := slices.MaxFunc(w.batch, func(a, b *command) int { return a.end.Compare(b.end) })
	ctx, cancel := context.WithDeadline(context.Background(), last.end)
	defer cancel()
	pipe := w.sender.cfg.Pipeline()
	for _, c := range w.batch {
		c.cmd.SetErr(errNoReply)
		_ = pipe.Process(ctx, c.cmd)
	}
	err := func() (err error) {
		defer w.sender.recovered(&err)
		_, err = pipe.Exec(ctx)
		return err
	}()
	for _, c := range w.batch {
		own := c.cmd.Err()
		if errors.Is(own, errNoReply) && err != nil {
			own = err
		}
		c.answer(own)
	}
}

var errNoReply = errors.New("no reply")
