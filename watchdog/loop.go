package watchdog

import "time"

// loop sleeps until something is due and does it, until Close. It never waits for a renewal or for
// an OnLost, so that it is never late for an end of trust.
func (w *Watchdog) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
		if sleep, ok := w.pass(); ok {
			timer.Reset(sleep)
		} else {
			timer.Stop()
		}
	}
}

// pass does what is due. It returns how long to sleep, or false for until woken.
func (w *Watchdog) pass() (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, false
	}
	now := w.now()
	w.compareClocks(now)
	w.giveUp(now.mono)
	for w.byDue.first() <= now.mono {
		w.collect(w.byDue[0].of, now.mono)
	}
	w.dispatch(now)
	w.runLater()
	w.sweep(now.mono)
	w.wakeAt = w.nextDue(now.mono)
	return time.Duration(w.wakeAt - now.mono), w.wakeAt != never
}

// compareClocks notices that the wall clock went ahead of the monotonic one: the machine was
// suspended, or a clock was set. It makes every lease due at the time when its trust is over by the
// wall clock. It ends none, because only the answer says whether the time of the lease went by or
// only that of the clock.
func (w *Watchdog) compareClocks(now clockReading) {
	offset := now.offset()
	if offset-w.offset < jump {
		return // kept, so that small steps add up
	}
	w.offset = offset
	for _, b := range w.buckets {
		for _, l := range b.all() {
			l.renewByWallClock(offset)
			w.replace(l)
		}
	}
}

// collect ends the leases without trust in b and puts those that are due in line.
func (w *Watchdog) collect(b *bucket, now int64) {
	for b.leases.first() <= now {
		l := b.leases[0].of
		switch {
		case now >= l.trust.mono && l.endsByMaxHold(now):
			w.lose(l, MaxHoldReached)
			continue
		case now >= l.trust.mono:
			w.lose(l, TrustEnded)
			continue
		case l.state == idle && l.next <= now:
			l.state = waiting
			b.dueLeases = append(b.dueLeases, l)
		}
		b.leases.fix(0, l.due())
	}
	w.reorder(b)
	w.enqueue(b)
}

// lose ends l. A goroutine of its own notifies the owner, because an OnLost that blocks must not
// delay the others.
func (w *Watchdog) lose(l *Lease, r Reason) {
	w.drop(l)
	l.state, l.reason = lost, r
	go w.notify(l)
}

// notify calls OnLost, unless Stop or Close came first. This is decided here, not in lose, so that
// Stop has as long as possible.
func (w *Watchdog) notify(l *Lease) {
	w.mu.Lock()
	if w.closed || l.state != lost {
		w.mu.Unlock()
		return
	}
	l.state = notified
	w.mu.Unlock()
	if l.onLost != nil {
		l.onLost.OnLost(l.reason)
	}
}

// sweep drops empty buckets, once in a while. A bucket in which locks come and go would otherwise
// be made anew for each.
func (w *Watchdog) sweep(now int64) {
	if now < w.sweepAt && w.leases > 0 {
		return
	}
	w.sweepAt = instantAfter(now, clockInterval)
	for key, b := range w.buckets {
		if len(b.leases) == 0 && b.calls == 0 && !b.queued {
			w.byDue.remove(b.index)
			delete(w.buckets, key)
			b.endFailing()
		}
	}
}

// nextDue returns when the loop must pass again. If leases come and go, the loop passes once each
// clockInterval, also if there is none at this moment. Otherwise each new lease would wake it.
func (w *Watchdog) nextDue(now int64) int64 {
	due := w.byDue.first()
	if w.leases > 0 || w.added {
		due = min(due, instantAfter(now, clockInterval))
	}
	w.added = false
	for c := range w.calls {
		due = min(due, c.end)
		if c.prompt && len(c.server.dueBuckets) > 0 {
			due = min(due, c.slow)
		}
	}
	return due
}
