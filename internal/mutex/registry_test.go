package mutex

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/owner"
)

// An acquisition that is being released is still in the lock state when the next one has the lock
// already.
func TestTheNearerOfTwoAcquisitionsIsReentered(t *testing.T) {
	outer := owner.ForAcquire(context.Background())
	inner := owner.ForAcquire(owner.NewContext(context.Background(), outer))
	beside := owner.ForAcquire(owner.NewContext(context.Background(), outer))
	deep := owner.ForAcquire(owner.NewContext(context.Background(), inner))
	by := func(o *owner.Owner) *acquisition.Acquisition {
		return &acquisition.Acquisition{Grant: acquisition.Grant{Owner: o}}
	}
	released, held := by(outer), by(inner)
	for _, order := range [][]*acquisition.Acquisition{{released, held}, {held, released}} {
		r := &LockState{held: order}
		require.Same(t, held, r.HeldBy(deep))
		require.Same(t, held, r.HeldBy(inner))
		require.Same(t, released, r.HeldBy(beside))
		require.Nil(t, r.HeldBy(owner.New()))
	}
}

// A watcher is notified of grants to its own owner only, whoever else comes and goes.
func TestWaitersAreNotifiedOfTheirOwnOwner(t *testing.T) {
	type watch struct {
		got  <-chan struct{}
		stop func()
		by   *owner.Owner
	}
	r := &LockState{}
	owners := []*owner.Owner{owner.New(), owner.New(), owner.New()}
	var all []watch
	for range 2000 {
		o := owners[rand.N(len(owners))]
		if rand.N(2) == 0 {
			got, stop := r.NotifyOnGrant(o)
			all = append(all, watch{got, stop, o})
		}
		if len(all) > 0 && rand.N(2) == 0 {
			i := rand.N(len(all))
			all[i].stop()
			all = append(all[:i], all[i+1:]...)
		}
		a := &acquisition.Acquisition{Grant: acquisition.Grant{Owner: o}}
		r.AddHeld(a)
		r.RemoveHeld(a)
		for _, w := range all {
			require.Len(t, w.got, map[bool]int{true: 1}[w.by == o])
			if w.by == o {
				<-w.got
			}
		}
	}
	for _, w := range all {
		w.stop()
	}
	require.Empty(t, r.subscribers)
}
