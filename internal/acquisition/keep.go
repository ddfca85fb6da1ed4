package acquisition

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/keptid"
	"github.com/redlatch/redlatch/lockerr"
)

// Keep is a call that has Redis keep a lock after its last hold. Redis then has the lock under
// another id, so that no late command for the acquisition changes it.
type Keep struct {
	ID     string // of all calls for one acquisition
	Number int    // of this call; a copy of an earlier call changes nothing
	For    time.Duration
}

// keeping is what an acquisition knows of its calls. It is guarded by Acquisition.mu.
type keeping struct {
	id    string
	calls int
	least time.Duration // what UnlockAfter wants; 0: only an Export wanted something

	// For how long Redis keeps the lock, since a call has succeeded: nobody here may free it any
	// more. 0: none has.
	keptFor time.Duration

	// Of the calls that succeeded, or whose reply was lost, the one that wanted the most: for how
	// long Redis may have kept the lock, and when that ended.
	mayKeepFor time.Duration
	mayEnd     time.Time
}

// keepingLocked returns a.keeping, and makes it if there is none. The caller holds a.mu.
func (a *Acquisition) keepingLocked() *keeping {
	if a.keeping == nil {
		a.keeping = &keeping{id: keptid.New()}
	}
	return a.keeping
}

// StoredID returns the id under which Redis has the lock.
func (a *Acquisition) StoredID() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.keeping == nil || a.keeping.calls == 0 {
		return a.ID
	}
	return keptid.Of(a.keeping.id, a.keeping.calls)
}

func (a *Acquisition) isKept() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keeping != nil && a.keeping.keptFor != 0
}

// keepsFor reports whether Redis keeps the lock for at least d, or will do so when the last hold is
// released.
func (a *Acquisition) keepsFor(d time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.keeping == nil:
		return false
	case a.state == released:
		return a.keeping.keptFor >= d
	}
	return a.keeping.least >= d
}

// freeOrKeep frees the lock, or has Redis keep it from now on: for exportFor, or if that is 0 for
// as long as an UnlockAfter wants. If the command that keeps it fails, the client does not send it
// again by itself: the lock then ends with its lease. The caller has the acquisition's turn.
//
// An Export may have failed before, and Redis may have done it, or may yet do it. Then freeOrKeep
// first has Redis keep the lock under the next id, which is the one that it then frees.
func (a *Acquisition) freeOrKeep(ctx context.Context, exportFor time.Duration) error {
	a.mu.Lock()
	if exportFor == 0 && a.keeping == nil {
		a.mu.Unlock()
		return a.free(ctx)
	}
	k := a.keepingLocked()
	k.calls++
	d, isFreed := k.least, false
	switch {
	case exportFor != 0:
		d = exportFor
	case d == 0:
		d, isFreed = a.Settings.Lease, true
	}
	call := Keep{ID: k.id, Number: k.calls, For: d}
	a.mu.Unlock()
	began := time.Now()
	inFlight, err := a.backend.Keep(ctx, a, call)
	a.mu.Lock()
	if end := began.Add(d); (inFlight.Any() || err == nil && !isFreed) && (d > k.mayKeepFor || d == k.mayKeepFor && end.Before(k.mayEnd)) {
		k.mayKeepFor, k.mayEnd = d, end
	}
	hasEnded := d <= k.mayKeepFor && !time.Now().Before(k.mayEnd)
	if errors.Is(err, ErrGone) && hasEnded && exportFor == 0 { // an export that has ended is of no use to its caller
		err = nil
	}
	if err == nil && !isFreed {
		k.keptFor = max(k.keptFor, d)
	}
	a.mu.Unlock()
	if isFreed && err == nil {
		return a.free(ctx)
	}
	return err
}

// free frees the lock, and notes whether Redis may have done it.
func (a *Acquisition) free(ctx context.Context) error {
	mayBeFreed := true // a hook may end the goroutine
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.mayBeFreed = a.mayBeFreed || mayBeFreed
	}()
	err := a.backend.Release(ctx, a)
	mayBeFreed = err == nil || errors.Is(err, lockerr.ErrIndeterminate)
	return err
}
