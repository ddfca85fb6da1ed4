package watchdog

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// call is one renewal in flight. At most one names a given lease. But a call that was given up may
// still run beside its successor.
type call struct {
	server  *server
	bucket  *bucket
	leases  []*Lease
	batch   []Renewal
	sent    clockReading
	timeout time.Duration
	slow    int64 // when it no longer counts as prompt
	end     int64 // when it is given up
	prompt  bool
	givenUp bool
}

// start sends a batch.
func (w *Watchdog) start(s *server, b *bucket, leases []*Lease, now clockReading) {
	c := w.newCall(s, b, leases, now)
	w.work.Go(func() { w.run(c) })
}

// newCall notes a batch as in flight. The instant of sending is that of the loop, before the
// goroutine of the call even runs: a little early is the safe side.
func (w *Watchdog) newCall(s *server, b *bucket, leases []*Lease, now clockReading) *call {
	c := &call{
		server: s, bucket: b, leases: leases, sent: now, prompt: true,
		batch: make([]Renewal, len(leases)),
		slow:  instantAfter(now.mono, slow),
	}
	longest, least, tries := int64(0), never, leases[0].tries
	for i, l := range leases {
		c.batch[i] = l.renewal(now.mono)
		l.state, l.again = inCall, false
		l.calls++
		longest, least = max(longest, l.trust.mono), min(least, l.trust.mono)
		tries = min(tries, l.tries)
	}
	c.timeout = max(timeout(b.every, time.Duration(longest-now.mono)), slowTimeout(b.every, time.Duration(least-now.mono), tries))
	c.end = instantAfter(now.mono, c.timeout+grace)
	w.calls[c] = struct{}{}
	s.prompt++
	b.calls++
	return c
}

// timeout returns how long a call may take: half the interval. If less than twice that trust is
// left, it is half of the trust, so that a call that hangs leaves time for another attempt. But it
// is no less than a quarter of the usual time, so that a slow server is not cut off shorter each
// time, and never more than the trust. If the leases of a batch have different trust, the longest
// counts. For the others the end of trust comes first, on time, whatever the call does.
func timeout(every, trust time.Duration) time.Duration {
	full := max(every/2, timeoutMin)
	return min(max(min(full, trust/2), full/4, timeoutMin), trust)
}

// slowTimeout returns how long a call may take after tries calls that went unanswered: twice as
// long each time, for a server that is slow. It is no more than half of the trust of any lease in
// the call, so that a call that hangs leaves time for another attempt.
func slowTimeout(every, trust time.Duration, tries uint8) time.Duration {
	d, most := every/2, trust/2
	for ; tries > 0 && d < most; tries-- {
		d *= 2
	}
	return min(d, most)
}

// run makes the call, unless nobody wants it any more, and hands in the answers.
func (w *Watchdog) run(c *call) {
	if !w.dropStopped(c) {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, c.timeout)
	defer cancel()
	var answers []Result
	err := errNoReturn
	// Deferred, so that it also runs if Renew panics or ends its goroutine.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("watchdog: Renew panicked: %v\n%s", p, debug.Stack())
		}
		w.report(c, err, w.applyAnswers(c, answers, err))
	}()
	answers, err = w.cfg.Renew(ctx, c.bucket.group, c.batch)
}

// dropStopped checks the leases again at the moment of sending, and leaves out those that were
// stopped since the batch was made. The wait in [Lease.Stop] alone is not enough: it has an end,
// and on a busy machine this goroutine can begin after it. dropStopped reports whether there is
// anything left to send.
func (w *Watchdog) dropStopped(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.givenUp || w.closed {
		for _, l := range c.leases {
			l.callReturned()
		}
		return false
	}
	kept := 0
	for i, l := range c.leases {
		if l.state != inCall {
			l.callReturned()
			continue
		}
		c.leases[kept], c.batch[kept] = l, c.batch[i]
		kept++
	}
	c.leases, c.batch = c.leases[:kept], c.batch[:kept]
	if kept == 0 {
		w.removeCall(c)
	}
	return kept > 0
}

// callReturned notes that a call which named l no longer does.
func (l *Lease) callReturned() {
	l.calls--
	if l.calls == 0 && l.noCalls != nil {
		close(l.noCalls)
		l.noCalls = nil
	}
}

// applyAnswers notes the answers of a call.
func (w *Watchdog) applyAnswers(c *call, answers []Result, err error) change {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	for _, l := range c.leases {
		l.callReturned()
	}
	if c.givenUp || w.closed {
		c.applyLateAnswers(answers)
		return noChange
	}
	for i, l := range c.leases {
		a := Unknown
		if i < len(answers) {
			a = answers[i]
		}
		w.applyAnswer(c, i, l, a, now.mono)
	}
	w.removeCall(c)
	return c.server.noteResult(c.bucket, err != nil || len(answers) == 0)
}

// applyLateAnswers notes the answers of a call that had been given up. A slow server extends leases
// too, and trust counts from the sending. Only Renewed counts. The heap is left alone, see
// [Lease.MarkRenewed].
func (c *call) applyLateAnswers(answers []Result) {
	for i, a := range answers {
		if l, lease := c.leases[i], c.batch[i].Lease; a == Renewed && lease > 0 && l.state.watched() {
			l.proveRenewal(c.sent, lease)
		}
	}
}

// applyAnswer notes what a call said of its i-th lease.
func (w *Watchdog) applyAnswer(c *call, i int, l *Lease, a Result, now int64) {
	if l.state != inCall {
		return // stopped or lost meanwhile: too late for any answer
	}
	l.state = idle
	switch a {
	case Gone:
		l.trust.mono = min(l.trust.mono, now)
		w.lose(l, GoneOnServer)
		return
	case Renewed, Held:
		l.tries = 0
		l.next = instantAfter(c.sent.mono, delay(c.bucket.every))
		if lease := c.batch[i].Lease; a == Renewed && lease > 0 {
			l.proveRenewal(c.sent, lease)
		}
		if overdue := time.Duration(c.sent.wall - l.trust.wall); overdue < 0 {
			l.renewByWallClock(w.offset) // suspended on the way: sent before, answered after
		} else {
			// The server still has it, so the clock may merely have been set. Ask
			// again soon, then ever less often.
			l.next = min(l.next, instantAfter(now, max(clockInterval, overdue)))
		}
	default:
		l.next = instantAfter(now, backoff(retryInterval(c.bucket.every, time.Duration(l.trust.mono-now)), int(l.tries)))
		l.tries = min(l.tries+1, 100)
	}
	if l.again {
		l.next = min(l.next, now)
	}
	w.replace(l)
}

// giveUp stops waiting for calls that outlived their context, so that the watchdog asks for their
// leases again. It also takes the places of slow calls back.
func (w *Watchdog) giveUp(now int64) {
	for c := range w.calls {
		if now >= c.slow && c.prompt {
			c.prompt = false
			c.server.prompt--
		}
		if now < c.end {
			continue
		}
		c.givenUp = true
		for i, l := range c.leases {
			w.applyAnswer(c, i, l, Unknown, now)
		}
		w.removeCall(c)
		if ch := c.server.noteResult(c.bucket, true); ch != noChange {
			// Not from here: a log handler may block.
			w.work.Go(func() { w.report(c, errNoReturn, ch) })
		}
	}
}

// removeCall gives the places of c back and lets the loop use them.
func (w *Watchdog) removeCall(c *call) {
	delete(w.calls, c)
	if c.prompt {
		c.prompt = false
		c.server.prompt--
	}
	c.bucket.calls--
	w.enqueue(c.bucket)
	if len(c.server.dueBuckets) > 0 || c.bucket.queued {
		w.wakeLoop(0)
	}
	w.wakeLoop(w.byDue.first())
}

// errNoReturn says that Renew did not return.
var errNoReturn = fmt.Errorf("watchdog: Renew did not return: %w", context.DeadlineExceeded)

// report logs what changed.
func (w *Watchdog) report(c *call, err error, ch change) {
	attrs := []slog.Attr{slog.Int("leases", len(c.leases))}
	if c.server.name != "" {
		attrs = append(attrs, slog.String("server", c.server.name))
	}
	switch ch {
	case beganToFail:
		w.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "watchdog: renewals began to fail", append(attrs, slog.Any("error", err))...)
	case recovered:
		w.cfg.Logger.LogAttrs(context.Background(), slog.LevelInfo, "watchdog: renewals work again", attrs...)
	}
}
