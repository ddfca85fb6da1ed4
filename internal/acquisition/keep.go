package acquisition

import (
	"context"
	"errors"
	"slices"
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

	mayKeep []keptTime // of the calls that succeeded, or whose reply was lost
}

// keptTime is for how long Redis may have kept the lock for a call, and when that ended.
type keptTime struct {
	d   time.Duration
	end time.Time
}

// noteKept notes that Redis may have kept the lock for a call, unless an earlier call says as much.
func (k *keeping) noteKept(t keptTime) {
	says := func(other keptTime) bool { return other.d >= t.d && !other.end.After(t.end) }
	if !slices.ContainsFunc(k.mayKeep, says) {
		k.mayKeep = append(k.mayKeep, t)
	}
}

// hasEnded reports whether Redis may have kept the lock for d, and that is over.
func (k *keeping) hasEnded(d time.Duration) bool {
	return slices.ContainsFunc(k.mayKeep, func(t keptTime) bool { return t.d >= d && !time.Now().Before(t.end) })
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
	case a.isGone, a.mayBeFreed, a.state == released && !a.isClosing:
		return a.keeping.keptFor >= d
	}
	return a.keeping.least >= d
}

// freeOrKeep frees the lock, or has Redis keep it from now on: for exportFor, or if that is 0 for
// as long as an UnlockAfter wants. If an UnlockAfter or an Export fails, the client does not send
// the command again by itself, and the lock ends with its lease. The caller has the acquisition's
// turn.
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
	sent, inFlight, err := a.backend.Keep(ctx, a, call)
	a.mu.Lock()
	if (inFlight.Any() || err == nil) && !isFreed && !a.isGone {
		k.noteKept(keptTime{d, sent.Add(d)})
	}
	switch {
	case !errors.Is(err, ErrGone):
	case exportFor == 0 && k.hasEnded(d): // an export that has ended is of no use to its caller
		err = nil
	default:
		a.isGone = true
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

// free frees the lock, and notes whether Redis has done it, or may have.
func (a *Acquisition) free(ctx context.Context) error {
	mayBeFreed, isGone := true, false // a hook may end the goroutine
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.mayBeFreed = a.mayBeFreed || mayBeFreed
		a.isGone = a.isGone || isGone
	}()
	err := a.backend.Release(ctx, a)
	isGone = err == nil || errors.Is(err, ErrGone)
	mayBeFreed = err == nil || errors.Is(err, lockerr.ErrIndeterminate)
	return err
}
