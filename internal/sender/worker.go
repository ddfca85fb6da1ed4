package sender

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// worker is a goroutine that calls go-redis for callers.
type worker struct {
	sender *Sender
	wake   chan struct{} // capacity 1: there is something to send; closed: the worker must end

	// Guarded by Sender.mu. While the worker sends, it may read batch without it.
	batch []*command // the commands that it sends
	since time.Time  // when it began to send them, or to be idle
	index int        // in Sender.busy; notBusy: not there
	slow  bool       // it has sent for slowAfter
}

const notBusy = -1

// waits reports whether the worker waits for replicas. It needs Sender.mu, as batch does.
func (w *worker) waits() bool { return len(w.batch) > 0 && w.batch[0].wait != nil }

func (w *worker) work() {
	defer w.exited()
	for called := true; called; _, called = <-w.wake {
		for w.sender.take(w, called) {
			called = false
			w.send()
		}
	}
}

// exited runs when the goroutine of the worker ends. If a hook of go-redis ended it in the middle
// of a batch, exited ends those commands with ErrGoexit, and lets another worker take the place.
func (w *worker) exited() {
	for _, c := range w.batch {
		c.answer(ErrGoexit)
	}
	s := w.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeBusy(w)
	s.callWorker()
}

func (w *worker) send() {
	if len(w.batch) == 1 {
		c := w.batch[0]
		c.answer(w.sender.sendOne(c))
	} else {
		w.sendPipeline()
	}
}

// sendPipeline sends a batch as one pipeline. Each command gets its own answer or error. If
// go-redis respects deadlines, it gives up when the last attempt of the batch ends.
func (w *worker) sendPipeline() {
	last := slices.MaxFunc(w.batch, func(a, b *command) int { return a.end.Compare(b.end) })
	ctx, cancel := context.WithDeadline(context.Background(), last.end)
	defer cancel()
	pipe := w.sender.cfg.Pipeline()
	for _, c := range w.batch {
		_ = pipe.Process(ctx, c.cmd)
	}
	err := func() (err error) {
		defer w.sender.recovered(&err)
		_, err = pipe.Exec(ctx)
		return err
	}()
	for _, c := range w.batch {
		own := c.cmd.Err()
		if own == nil && !hasReply(c.cmd) {
			own = cmp.Or(err, errNoReply)
		}
		c.answer(own)
	}
}

// hasReply reports whether go-redis read a reply to a command without an error. It did not if a
// hook of the pipeline returned without sending it.
func hasReply(cmd redis.Cmder) bool {
	script, is := cmd.(interface{ Val() any })
	return !is || script.Val() != nil // no script answers with nil
}

var errNoReply = errors.New("no reply")
