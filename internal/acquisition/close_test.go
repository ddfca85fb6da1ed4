package acquisition_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
)

// releases are the releases of many acquisitions, in the two rounds of CloseAll.
type releases struct {
	mu       sync.Mutex
	first    map[time.Duration]int // when the releases of the first round began, and how many did
	second   int
	now, max int // at a time, in the second round
	ends     map[time.Time]bool
}

// closesMany closes n acquisitions, and returns the releases. answer gets the context and the
// round.
func closesMany(s *scene, n int, answer func(ctx context.Context, round int) error) (*releases, []*backend, error) {
	r := &releases{first: map[time.Duration]int{}, ends: map[time.Time]bool{}}
	begun := time.Now()
	var all []*acquisition.Acquisition
	var backends []*backend
	for range n {
		h, b := s.start()
		b.answer = func(ctx context.Context, _ int) error {
			if isSingle := (session.Operation{}).ForContext(ctx).Once; isSingle {
				end, _ := ctx.Deadline()
				r.mu.Lock()
				r.first[time.Since(begun)]++
				r.ends[end] = true
				r.mu.Unlock()
				return answer(ctx, 1)
			}
			r.mu.Lock()
			r.second++
			r.now++
			r.max = max(r.max, r.now)
			r.mu.Unlock()
			defer func() {
				r.mu.Lock()
				r.now--
				r.mu.Unlock()
			}()
			return answer(ctx, 2)
		}
		all, backends = append(all, h.A), append(backends, b)
	}
	err := acquisition.CloseAll(context.Background(), all)
	require.Zero(s.t, s.session.Watchdog.Len(), "nothing is renewed any more")
	for _, b := range backends {
		b.notified(0, 1)
	}
	return r, backends, err
}

func TestClosingReleasesAllAtOnceWhereThatIsQuick(t *testing.T) {
	inBubble(t, func(s *scene) {
		begun := time.Now()
		r, _, err := closesMany(s, 200, func(context.Context, int) error { return nil })
		require.NoError(t, err)
		require.Zero(t, time.Since(begun))
		require.Equal(t, map[time.Duration]int{0: 200}, r.first)
		require.Zero(t, r.second)
	})
}

// The first round has one deadline for all releases, with a millisecond for each.
func TestTheFirstReleasesHaveOneDeadline(t *testing.T) {
	for n, gets := range map[int]time.Duration{3: 503 * time.Millisecond, 1600: 2 * time.Second} {
		inBubble(t, func(s *scene) {
			end := time.Now().Add(gets)
			r, _, err := closesMany(s, n, func(context.Context, int) error { return nil })
			require.NoError(t, err)
			require.Len(t, r.ends, 1)
			for e := range r.ends {
				require.WithinDuration(t, end, e, 0)
			}
		})
	}
}

// Releases that hang give their places to others after their share of the time. So each release is
// sent once before any is sent again.
func TestEachLockIsReleasedOnceBeforeAnyIsReleasedAgain(t *testing.T) {
	inBubble(t, func(s *scene) {
		r, _, err := closesMany(s, 128, func(ctx context.Context, round int) error {
			if round == 1 {
				return hang(ctx, 0)
			}
			time.Sleep(time.Millisecond)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, map[time.Duration]int{0: 64, 157 * time.Millisecond: 64}, r.first)
		require.Equal(t, 128, r.second)
		require.Equal(t, 64, r.max)
	})
}

func TestARefusedReleaseIsSentAgainWhileTrustLasts(t *testing.T) {
	inBubble(t, func(s *scene) {
		var refusals atomic.Int32
		r, backends, err := closesMany(s, 3, func(ctx context.Context, round int) error {
			if round == 1 {
				return errAnswer
			}
			end, _ := ctx.Deadline()
			require.WithinDuration(t, time.Now().Add(trusted), end, time.Millisecond)
			if refusals.Add(1) == 1 {
				return errAnswer
			}
			return nil
		})
		require.ErrorIs(t, err, errAnswer)
		require.Equal(t, 3, r.second)
		for _, b := range backends {
			b.sent("release", "release")
		}
	})
}

// Where trust ends in the first round, the error of that round is the one to return.
func TestAReleaseThatFailedIsNotSentAfterTrust(t *testing.T) {
	inBubble(t, func(s *scene) {
		s.settings.Lease, s.settings.RenewInterval = 300*time.Millisecond, 100*time.Millisecond
		r, backends, err := closesMany(s, 2, func(ctx context.Context, round int) error {
			<-ctx.Done()
			return errAnswer
		})
		require.ErrorIs(t, err, errAnswer)
		require.Zero(t, r.second)
		backends[0].sent("release")
	})
}

// Closing takes all holds, whatever their number. It notifies those that nobody unlocks.
func TestClosingNotifiesTheHoldsThatNobodyUnlocks(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		inner, dropped := s.reenter(h.A), s.reenter(h.A)
		ctx, orphan := h.Derive(context.Background()), dropped.Lost()
		collect(dropped)
		lost := h.Lost()
		require.NoError(t, h.A.Close(context.Background()))
		require.True(t, isClosed(lost))
		require.True(t, isClosed(inner.Lost()))
		require.True(t, isClosed(orphan))
		require.ErrorIs(t, context.Cause(ctx), lockerr.ErrClosed)
		require.False(t, h.Trusted())
		require.True(t, h.TrustedUntil().IsZero())
		require.False(t, h.A.IsLive())
		require.Equal(t, "unknown", h.A.OldestCallSite().String())
		for range 2 {
			require.ErrorIs(t, h.Unlock(context.Background()), lockerr.ErrClosed)
		}
		h.HandleCollected()
		s.log.are(t, otherDropped)
		require.NoError(t, h.A.Close(context.Background()))
		b.sent("reenter 2 3s", "reenter 3 3s", "release")
		b.notified(0, 1)
	})
}

// An Unlock that has begun ends its hold, and Close only finishes the release.
func TestClosingOvertakesAnUnlock(t *testing.T) {
	for name, c := range map[string]struct{ answer, result error }{
		"Redis answers":         {nil, nil},
		"Close was quicker":     {acquisition.ErrGone, nil},
		"Redis does not answer": {errAnswer, errAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *scene) {
				h, b := s.start()
				b.answer = func(_ context.Context, n int) error {
					time.Sleep(time.Millisecond)
					if n == 1 {
						return c.answer
					}
					return acquisition.ErrGone
				}
				lost := h.Lost()
				unlocked := begin(func() error { return h.Unlock(context.Background()) })
				require.NoError(t, h.A.Close(context.Background()), "that it is gone is no error")
				require.ErrorIs(t, <-unlocked, c.result)
				synctest.Wait()
				require.False(t, isClosed(lost), "its own Unlock ended it")
				b.sent("release", "release")
				b.notified(0, 1)
			})
		})
	}
}

// A lock that was lost before needs no release, and nobody unlocks it any more.
func TestClosingEndsALostLock(t *testing.T) {
	inBubble(t, func(s *scene) {
		s.renewal = gone
		h, b := s.start()
		<-h.Lost()
		b.notified(1, 0)
		require.NoError(t, h.A.Close(context.Background()))
		b.notified(1, 1)
		require.ErrorIs(t, h.Unlock(context.Background()), lockerr.ErrLost)
		require.Empty(t, b.commands)
	})
}

func TestClosingWithAContextThatEndedSendsNothing(t *testing.T) {
	inBubble(t, func(s *scene) {
		var all []*acquisition.Acquisition
		var backends []*backend
		for range 20 {
			h, b := s.start()
			all, backends = append(all, h.A), append(backends, b)
			defer func() { require.True(t, isClosed(h.Lost())) }()
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.ErrorIs(t, acquisition.CloseAll(ctx, all), context.Canceled)
		for _, b := range backends {
			require.Empty(t, b.commands)
			b.notified(0, 1)
		}
	})
}
