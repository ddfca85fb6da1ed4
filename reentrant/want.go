package reentrant

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
)

// want is the request of one Lock or TryLock.
type want struct {
	*mutex.Want

	family *Family
	l      *local
}

// end ends what [Mutex.want] began.
func (w *want) end() {
	w.family.leave(w.Keys.Lock, w.l)
	w.End()
}

// giveBack releases in the background what may have been, or may yet be, granted under an id.
func (w *want) giveBack(id string, strays session.Strays) {
	w.GiveBack(strays, func(ctx context.Context) error {
		_, err := w.Release(ctx, id, 0)
		return err
	})
}

// begin makes a hold of a grant, and the acquisition that it begins.
func (w *want) begin(id string, fence int64, sent time.Time, strays session.Strays, turn bool) *acquisition.Hold {
	w.family.enter(w.Keys.Lock) // for the acquisition; until Ended
	k := &keeper{want: w, Counting: mutex.Counting{Want: w.Want}}
	k.turn.Store(turn)
	h := w.Begin(k, id, fence, sent, strays)
	w.l.granted(h.A)
	return h
}
