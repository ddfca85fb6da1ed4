package watchdog

// server is a server that answers renewals. Each has calls of its own, so that one that hangs delays
// none of the others.
type server struct {
	name       string
	dueBuckets []*bucket   // with due leases and calls left, round robin
	prompt     int         // calls in flight, without those that turned out slow
	failing    map[int]int // kind of lease -> buckets whose last call failed as a whole
}

// serverOf returns the server that now answers for a bucket.
func (w *Watchdog) serverOf(ln *bucket) *server {
	name := ""
	if w.server != nil {
		name = w.server(ln.group.Slot)
	}
	s := w.servers[name]
	if s == nil {
		s = &server{name: name, failing: make(map[int]int)}
		w.servers[name] = s
	}
	return s
}

// enqueue puts ln in line for a call if it has any to make and a place for it.
func (w *Watchdog) enqueue(ln *bucket) {
	if !ln.queued && len(ln.dueLeases) > 0 && ln.calls < callsPerBucket {
		ln.queued = true
		s := w.serverOf(ln)
		s.dueBuckets = append(s.dueBuckets, ln)
	}
}

// dispatch starts calls while their servers have places: one for each bucket in turn.
func (w *Watchdog) dispatch(now clockReading) {
	for _, s := range w.servers {
		for s.prompt < callsPrompt && len(s.dueBuckets) > 0 {
			ln := s.dueBuckets[0]
			s.dueBuckets = s.dueBuckets[1:]
			ln.queued = false
			if batch := ln.nextBatch(now.mono, w.size); len(batch) > 0 {
				w.start(s, ln, batch, now)
			}
			w.reorder(ln)
			w.enqueue(ln)
		}
	}
}

// change is what a call changed for its server that is worth a line in the log.
type change int8

const (
	noChange change = iota
	beganToFail
	recovered
)

// noteResult notes whether a call for ln failed as a whole. It says when calls for leases of that
// kind began to fail on the server, or no longer do. So an outage is one line in the log, and not one
// for each bucket and attempt.
func (s *server) noteResult(ln *bucket, failed bool) change {
	switch {
	case failed == (ln.failingOn != nil):
	case failed:
		ln.failingOn = s
		s.failing[ln.group.Kind]++
		if s.failing[ln.group.Kind] == 1 {
			return beganToFail
		}
	case ln.endFailing() == 0:
		return recovered
	}
	return noChange
}

// endFailing notes that ln does not fail any more. It returns how many buckets of its kind still do on
// the same server.
func (ln *bucket) endFailing() (left int) {
	s := ln.failingOn
	if s == nil {
		return 0
	}
	ln.failingOn = nil
	s.failing[ln.group.Kind]--
	return s.failing[ln.group.Kind]
}
