package catalog

import "time"

// Row is a line of a table of locks: a mutex, or a semaphore.
type Row struct {
	Name string
	Kind Kinds // Mutex or Semaphore; if Err is set, all kinds of the name
	Err  error // the rest is not known

	Held                bool // somebody holds the mutex, or has a permit; or Redis keeps it
	Kept                bool // nobody holds the mutex, and Redis keeps it
	Holder, Description string
	Fence               int64 // the last one of the mutex; 0 if none is known

	InUse, Limit int // of a semaphore, in units

	Since time.Time     // of the holder, or of the oldest permit; zero if that is not known
	Lease time.Duration // what is left of the lease, or of the one that ends first, if Held; negative: no end

	Waiting   int       // in the queue
	Listeners int       // about how many clients of a plain mutex wait, which has no queue
	Oldest    time.Time // since when the first waiter in the queue waits; zero if that is not known
}

// AtLimit reports whether no unit of a semaphore is free.
func (r *Row) AtLimit() bool { return r.Limit > 0 && r.InUse >= r.Limit }

// Rows returns a row for the mutex of the name, and one for its semaphore. A mutex that is free has
// no row beside a semaphore.
func (s *State) Rows() (rows []Row) {
	if s.Err != nil {
		return []Row{{Name: s.Name, Kind: s.Kinds, Err: s.Err}}
	}
	if s.Kinds.Has(Mutex) && (s.Lock.Held() || s.Waiting > 0 || !s.Kinds.Has(Semaphore)) {
		rows = append(rows, s.mutexRow())
	}
	if s.Kinds.Has(Semaphore) {
		rows = append(rows, s.semaphoreRow())
	}
	return rows
}

func (s *State) mutexRow() Row {
	r := Row{
		Name: s.Name, Kind: Mutex, Held: s.Lock.Held(), Kept: s.Lock.IsKept(), Holder: s.Lock.Holder, Description: s.Lock.Description,
		Fence: s.Lock.Fence, Since: s.Lock.Since, Lease: s.Lock.Remaining, Waiting: s.Waiting,
	}
	switch {
	case s.Waiting > 0 && len(s.Waiters) > 0:
		r.Oldest = s.Waiters[0].Since
	case s.Waiting == 0:
		r.Listeners = max(s.Subscribers, 0)
	}
	return r
}

func (s *State) semaphoreRow() Row {
	r := Row{Name: s.Name, Kind: Semaphore, InUse: s.Permits.InUse, Limit: s.Permits.Limit, Waiting: s.Permits.Waiting}
	for i := range s.Permits.Holders {
		h := &s.Permits.Holders[i]
		if !h.Since.IsZero() && (r.Since.IsZero() || h.Since.Before(r.Since)) {
			r.Since = h.Since
		}
		if !r.Held || h.Remaining < r.Lease {
			r.Lease = h.Remaining
		}
		r.Held = true
	}
	if len(s.PermitWaiters) > 0 {
		r.Oldest = s.PermitWaiters[0].Since
	}
	return r
}
