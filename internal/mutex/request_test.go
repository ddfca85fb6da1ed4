package mutex

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// quiet is an acquisition.MutexBackend whose commands are done at once.
type quiet struct{ reentry error }

func (q quiet) Reenter(context.Context, *acquisition.Acquisition, int, func() time.Duration) (acquisition.HoldsUpdate, error) {
	return acquisition.HoldsUpdate{Sent: time.Now()}, q.reentry
}

func (quiet) SetHolds(context.Context, *acquisition.Acquisition, int) (acquisition.HoldsUpdate, error) {
	return acquisition.HoldsUpdate{Sent: time.Now()}, nil
}
func (quiet) Release(context.Context, *acquisition.Acquisition) error { return nil }
func (quiet) Keep(context.Context, *acquisition.Acquisition, acquisition.Keep) (time.Time, session.InFlight, error) {
	return time.Now(), session.InFlight{}, nil
}
func (quiet) OnLost(*acquisition.Acquisition)  {}
func (quiet) OnEnded(*acquisition.Acquisition) {}
func (quiet) CleanUp(string, session.InFlight) {}

// client is a client without Redis, in a bubble.
type client struct {
	*Registry
	t   *testing.T
	log bytes.Buffer
}

func inBubble(t *testing.T, play func(c *client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &client{t: t}
		c.Registry = NewRegistry(session.New(session.Config{Log: slog.New(slog.NewTextHandler(&c.log, nil)), Description: "me"}))
		play(c)
		c.Session.BeginClose()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, c.Session.FinishClose(ctx), "a request that nobody ended")
		require.Zero(t, c.Len(), "names in use")
	})
}

func (c *client) request(st settings.Lock) *Request {
	core := c.NewCore("orders", &st)
	w := new(Request)
	require.NoError(c.t, core.Begin(context.Background(), w))
	return w
}

// grant gives the lock to the request.
func (c *client) grant(w *Request) *acquisition.Hold {
	return w.StartAcquisition(quiet{}, acquisition.Grant{ID: w.NewAcquisitionID(), Fence: 1, Sent: time.Now()})
}

func TestARequestThatCannotBeginIsNotCounted(t *testing.T) {
	inBubble(t, func(c *client) {
		core := c.NewCore("orders", new(settings.Default))
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(io.ErrNoProgress)
		require.ErrorIs(t, core.Begin(ctx, new(Request)), io.ErrNoProgress)
		require.Zero(t, c.Len())

		c.Session.BeginClose()
		require.ErrorIs(t, core.Begin(context.Background(), new(Request)), lockerr.ErrClosed)
		require.Zero(t, c.Len())
	})
}

// Redis may not be asked for a lock with a name or settings that are not usable.
func TestACoreSaysWhatIsWrongWithIt(t *testing.T) {
	inBubble(t, func(c *client) {
		tooShort := settings.Default
		tooShort.Lease = 1
		none, badName, badLease := Core{}, c.NewCore("", new(settings.Default)), c.NewCore("orders", &tooShort)
		for _, core := range []*Core{&none, &badName, &badLease} {
			require.ErrorIs(t, core.Begin(context.Background(), new(Request)), lockerr.ErrConfig)
			info, err := core.Inspect(context.Background())
			require.ErrorIs(t, err, lockerr.ErrConfig)
			require.Zero(t, info)
			_, err = core.ForceRelease(context.Background(), "", nil)
			require.ErrorIs(t, err, lockerr.ErrConfig)
		}
	})
}

// A request that comes when the acquisition of its chain was released needs a fresh grant. If Close
// released it, the chain gets no lock any more.
func TestAReleasedAcquisitionIsNotReentered(t *testing.T) {
	for _, closing := range []bool{false, true} {
		inBubble(t, func(c *client) {
			w := c.request(settings.Default)
			h := c.grant(w)
			again, has, err := w.ReenterHeld(context.Background())
			require.NoError(t, err)
			require.True(t, has)
			require.NotNil(t, again)
			if closing {
				c.Session.BeginClose()
			}
			require.NoError(t, h.A.Close(context.Background()))
			again, has, err = w.ReenterHeld(context.Background())
			require.Nil(t, again)
			require.Equal(t, closing, has)
			if closing {
				require.ErrorIs(t, err, lockerr.ErrClosed)
			} else {
				require.NoError(t, err)
			}
			w.RemoveAcquisition(h.A)
			_, has, err = w.ReenterHeld(context.Background())
			require.NoError(t, err)
			require.False(t, has)
			w.Close()
		})
	}
}

// Close may have looked for holds before there was this one.
func TestAGrantThatComesDuringCloseIsReleased(t *testing.T) {
	inBubble(t, func(c *client) {
		w := c.request(settings.Default)
		h := c.grant(w)
		c.Session.BeginClose()
		handle, err := w.NewHandle(context.Background(), context.Background(), h, nil)
		require.Nil(t, handle)
		require.ErrorIs(t, err, lockerr.ErrClosed)
		synctest.Wait()
		require.True(t, isClosed(h.Lost()))
		require.False(t, h.A.IsLive())
		w.Close()
		require.Equal(t, 1, c.Len(), "the acquisition uses the name too")
		require.Equal(t, []*acquisition.Acquisition{h.A}, c.Held())
		w.RemoveAcquisition(h.A)
		require.Empty(t, c.Held())
	})
}

func TestAReentryThatFailsSaysSo(t *testing.T) {
	inBubble(t, func(c *client) {
		w := c.request(settings.Default)
		h := w.StartAcquisition(quiet{io.ErrNoProgress}, acquisition.Grant{ID: w.NewAcquisitionID(), Fence: 1, Sent: time.Now()})
		again, has, err := w.ReenterHeld(context.Background())
		require.Nil(t, again)
		require.True(t, has)
		require.ErrorIs(t, err, io.ErrNoProgress)
		require.NoError(t, h.Unlock(context.Background()))
		w.RemoveAcquisition(h.A)
		w.Close()
	})
}

// The background releases what an id may have for as long as it may have it.
func TestACleanUpGoesOnWhileThereMayBeSomething(t *testing.T) {
	inBubble(t, func(c *client) {
		w := c.request(settings.Default)
		for primitive, stands := range map[event.Primitive]time.Duration{
			event.Mutex:     30 * time.Second,
			event.FairMutex: 35 * time.Second, // a heartbeat, and a lease after it
		} {
			w.Primitive = primitive
			begun := time.Now()
			var last time.Duration
			w.CleanUpID("a:1", session.InFlight{}, func(ctx context.Context, _ string) (lua.Status, error) {
				end, ok := ctx.Deadline()
				require.True(t, ok)
				require.WithinDuration(t, time.Now().Add(w.Settings.AttemptTimeout()), end, 0)
				last = time.Since(begun)
				time.Sleep(time.Second)
				return 0, io.ErrNoProgress
			})
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, stands, last)
		}
		calls := 0
		w.CleanUpID("a:1", session.InFlight{}, func(context.Context, string) (lua.Status, error) { calls++; return 0, nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, calls)
		w.Close()
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Trust in a grant is over in the instant in which the answer is as old as the trust.
func TestAGrantMayBeOldWhenItArrives(t *testing.T) {
	inBubble(t, func(c *client) {
		w := c.request(settings.Default)
		sent := time.Now()
		time.Sleep(w.Settings.Lease - w.Settings.Margin() - 1)
		require.False(t, w.TrustExpired(sent))
		time.Sleep(time.Nanosecond)
		require.True(t, w.TrustExpired(sent))
		w.Close()
	})
}

// Only the wait for the lock ends with the client. Only it must say that an earlier request may
// have got the lock.
func TestAnEarlierRequestIsTheAffairOfTheLock(t *testing.T) {
	inBubble(t, func(c *client) {
		w := c.request(settings.Default)
		require.False(t, w.NoteExpired(nil))
		require.False(t, w.NoteExpired(io.EOF))
		require.False(t, w.NewWaitOperation().MaybeApplied)
		require.True(t, w.NoteExpired(&lockerr.OpError{Err: session.ErrWindowExpired}))
		require.False(t, w.NoteExpired(nil))
		lock, unlock := w.NewWaitOperation(), w.NewReleaseOperation()
		require.True(t, lock.MaybeApplied && lock.StopOnClose && !lock.RetryRefused)
		require.True(t, !unlock.MaybeApplied && !unlock.StopOnClose && unlock.RetryRefused)
		h := c.grant(w)
		require.False(t, w.NewLockOperation().MaybeApplied, "a re-entry of the grant that came under another id")
		require.NoError(t, h.A.Close(context.Background()))
		w.RemoveAcquisition(h.A)
		w.Close()
	})
}

// If nobody said who has the lock, it may be an acquisition of this client.
func TestTheErrorOfAWaitNamesTheHolder(t *testing.T) {
	inBubble(t, func(c *client) {
		holder := c.request(settings.Default)
		h := c.grant(holder)
		w := c.request(settings.Default)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		<-ctx.Done()
		var refused *lockerr.NotAcquiredError
		require.ErrorAs(t, w.WaitError(ctx, ctx.Err(), lockerr.NotAcquiredError{}), &refused)
		require.Equal(t, h.A.ID, refused.Holder)
		require.Equal(t, "me", refused.Description)
		require.Equal(t, "orders", refused.Name)
		require.ErrorIs(t, refused, context.DeadlineExceeded)
		require.InDelta(t, settings.Default.Lease-time.Second, refused.Remaining, float64(time.Millisecond))

		require.ErrorAs(t, w.WaitError(ctx, ctx.Err(), lockerr.NotAcquiredError{Holder: "another"}), &refused)
		require.Equal(t, "another", refused.Holder)
		require.Empty(t, refused.Description)
		require.Zero(t, refused.Remaining)

		require.NoError(t, h.Unlock(context.Background()))
		require.Nil(t, w.State.Holder())
		holder.RemoveAcquisition(h.A)
		holder.Close()
		w.Close()
	})
}

// The warning comes once, and not before this client has the lock.
func TestTheSelfDeadlockWarningComesWhenTheClientItselfHolds(t *testing.T) {
	inBubble(t, func(c *client) {
		w := c.request(settings.Default)
		warning := w.NewSelfDeadlockWarning()
		require.Nil(t, warning.C)
		warning.Start()
		time.Sleep(5 * time.Second)
		warning.Start() // is running already
		time.Sleep(5 * time.Second)
		<-warning.C
		warning.Check()
		h := c.grant(w)
		time.Sleep(10 * time.Second)
		<-warning.C
		warning.Check()
		warning.Stop()
		synctest.Wait()
		require.Equal(t, 1, strings.Count(c.log.String(), "a long wait for a lock that this client itself holds"))
		require.NoError(t, h.A.Close(context.Background()))
		w.RemoveAcquisition(h.A)
		w.Close()
	})
}

func TestTheSelfDeadlockWarningCanBeOff(t *testing.T) {
	inBubble(t, func(c *client) {
		st := settings.Default
		st.SelfDeadlockAfter = 0
		w := c.request(st)
		warning := w.NewSelfDeadlockWarning()
		warning.Start()
		require.Nil(t, warning.C)
		warning.Stop()
		w.Close()
	})
}

func TestAnErrorIsNoAnswer(t *testing.T) {
	failed := errors.New("failed")
	require.Equal(t, acquisition.ErrGone, asErrGone(lua.Gone, nil))
	require.Equal(t, failed, asErrGone(lua.Gone, failed))
	require.NoError(t, asErrGone(lua.Granted, nil))
}

// A waiter may give up while another goroutine of its client starts an acquisition for it. The two
// share no field that one of them changes: with -race, this test fails if they do.
func TestAWaiterMayGiveUpDuringALocalHandoff(t *testing.T) {
	inBubble(t, func(c *client) {
		w := c.request(settings.Default)
		require.True(t, w.NoteExpired(session.ErrWindowExpired))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		started := make(chan *acquisition.Hold)
		go func() {
			started <- w.StartAcquisition(quiet{}, acquisition.Grant{ID: w.NewAcquisitionID(), Fence: 1, Sent: time.Now()})
		}()
		require.Error(t, w.WaitError(ctx, ctx.Err(), lockerr.NotAcquiredError{}))
		h := <-started
		require.True(t, w.NewWaitOperation().MaybeApplied, "it belongs to the wait")
		require.NoError(t, h.A.Close(context.Background()))
		w.RemoveAcquisition(h.A)
		w.Close()
	})
}

// The acquisition that this client had may not be the one that refused the request.
func TestOnlyTheHolderOfTheErrorHasALine(t *testing.T) {
	inBubble(t, func(c *client) {
		holder := c.request(settings.Default)
		h := c.grant(holder)
		w := c.request(settings.Default)
		for id, named := range map[string]bool{h.A.ID: true, "another": false, "": false} {
			refused := &lockerr.NotAcquiredError{Holder: id}
			_, err := w.NewHandle(context.Background(), context.Background(), nil, refused)
			require.Same(t, refused, err)
			require.Equal(t, named, refused.AcquiredAt != "", id)
		}
		w.Close()
		require.NoError(t, h.A.Close(context.Background()))
		holder.RemoveAcquisition(h.A)
		holder.Close()
	})
}
