package lock

import (
	"context"
	"runtime"
	"time"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/lockerr"
)

// Export ends this hold and returns a text. Another goroutine or process passes the text to Attach
// of the mutex with the same name, and goes on with the lock. The parameter within says for how
// long Redis keeps the lock from now on. Attach must come in that time. Nobody renews the lock
// meanwhile.
//
// To use a hold in another goroutine of the same client, no Export is needed. Its methods may be
// called anywhere.
//
// Attach takes a fresh grant, with a larger fence, in one step. So of several Attach calls with one
// text, one succeeds, and a resource that checks fences rejects what this program still writes. The
// price:
//   - If no Attach succeeds within the time, the lock ends, and others may get it.
//   - Anybody with the text, and with access to Redis, can take the lock. The text has the name of
//     the lock, its fence, and the id under which Redis keeps it. Nobody can guess that id, but
//     everybody who may read the keys of Redis sees it. No text takes a lock that somebody holds.
//   - The time of an UnlockAfter of another hold is forgotten: the lock goes on under the new
//     grant.
//   - If nobody knows whether an Attach succeeded (lockerr.ErrIndeterminate), the lock is freed.
//
// After Export, this hold has ended as after Unlock: its contexts have ended, with a cause that
// says that it was exported, Trusted is false, and Unlock returns lockerr.ErrNotHeld, which says so
// too. Inside of Do, the function may export its hold, and Do then does not unlock.
//
// Export waits as Unlock does, and costs one round trip. Errors are those of UnlockAfter. It
// returns lockerr.ErrConfig if the owner has other holds of the lock. With an error there is no
// text. Call Export again, or Unlock. If other goroutines were re-entering the lock, the client may
// have released it in the background meanwhile, and Export then returns lockerr.ErrNotHeld.
func (h *Hold) Export(ctx context.Context, within time.Duration) (text string, err error) {
	if !h.isValid() {
		return "", &lockerr.OpError{Kind: lockerr.ErrNotHeld, Op: "export"}
	}
	defer runtime.KeepAlive(h)
	id, err := h.inner.Export(ctx, within)
	if err := h.unlocked(err); err != nil {
		return "", err
	}
	return key.Exported{Name: h.Name(), ID: id, Fence: h.Fence()}.String(), nil
}
