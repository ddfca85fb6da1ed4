package watchdog

// server is a server that answers renewals. Each has calls of its own, so that one that hangs
// delays none of the others.
type server struct {
	name       string
	dueBuckets []*bucket   // with due leases and calls left, round robin
	prompt     int         // calls in flight, without those that turned out slow
	failing    map[int]int // kind of lease -> buckets whose last call failed as a whole
}

// serverOf returns the server that now answers for a bucket.
func (w *Watchdog) serverOf(b *bucket) *server {
	name := ""
	if w.cfg.Server != nil {
		name = w.cfg.Server(b.group.Slot)
	}
	s := w.servers[name]
	if s == nil {
		s = &server{name: name, failing: make(map[int]int)}
		w.servers[name] = s
	}
	return s
}

// enqueue puts b in line for a call if it has any to make and a place for it.
func (w *Watchdog) enqueue(b *bucket) {
	if !b.queued && len(b.dueLeases) > 0 && b.calls < callsPerBucket {
		b.queued = true
		s := w.serverOf(b)
		s.dueBuckets = append(s.dueBuckets, b)
	}
}

// dispatch starts calls while their servers have places: one for each bucket in turn.
func (w *Watchdog) dispatch(now clockReading) {
	for _, s := range w.servers {
		for s.prompt < callsPrompt && len(s.dueBuckets) > 0 {
			b := s.dueBuckets[0]
			s.dueBuckets = s.dueBuckets[1:]
			b.queued = false
			if batch := b.nextBatch(now.mono, w.cfg.BatchSize); len(batch) > 0 {
				w.start(s, b, batch, now)
			}
			w.reorder(b)
			w.enqueue(b)
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

// noteResult notes whether a call for b failed as a whole. It says when calls for leases of that
// kind began to fail on the server, or no longer do. So an outage is one line in the log, and not
// one for each bucket and attempt.
func (s *server) noteResult(b *bucket, failed bool) change {
	switch {
	case failed == (b.failingOn != nil):
	case failed:
		b.failingOn = s
		s.failing[b.group.Kind]++
		if s.failing[b.group.Kind] == 1 {
			return beganToFail
		}
	case b.endFailing() == 0:
		return recovered
	}
	return noChange
}

// endFailing notes that b does not fail any more. It returns how many buckets of its kind still do
// on the same server.
func (b *bucket) endFailing() (left int) {
	s := b.failingOn
	if s == nil {
		return 0
	}
	b.failingOn = nil
	s.failing[b.group.Kind]--
	return s.failing[b.group.Kind]
}
