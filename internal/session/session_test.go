package session

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// Closing begins once. It refuses new requests and waits for those that have begun.
func TestClosingRefusesNewRequestsAndWaitsForOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Session) {
		require.True(t, s.BeginRequest())
		require.False(t, s.IsClosing())
		select {
		case <-s.Closing():
			require.Fail(t, "it is not closing")
		default:
		}
		require.True(t, s.BeginClose())
		require.False(t, s.BeginClose())
		require.True(t, s.IsClosing())
		<-s.Closing()
		require.False(t, s.BeginRequest())
		time.AfterFunc(time.Minute, s.EndRequest)
		require.Equal(t, time.Minute, finish(t, s))
		s.Background(func(context.Context) { time.Sleep(time.Minute) })
		require.Equal(t, time.Minute, finish(t, s), "again")
	})
}

// Closing ends background work when its own context ends, and gives the work an instant to stop.
func TestClosingEndsBackgroundWork(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Session) {
		ended := false
		s.Background(func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(10 * time.Millisecond)
			ended = true
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.FinishClose(ctx), context.DeadlineExceeded)
		require.True(t, ended)
	})
}

// A session that has closed leaves no worker of its sender.
func TestAClosedSessionLeavesNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Redis: processFunc(func(context.Context, redis.Cmder) error { return nil })})
		_, err := Do(t.Context(), s, Operation{Op: "lock", Name: "x", AttemptTimeout: time.Second}, isAnswered)
		require.NoError(t, err)
		require.Zero(t, finish(t, s))
	})
}

// Each id of a session is a new number, in decimal digits.
func TestIDsOfASessionCount(t *testing.T) {
	s := New(Config{})
	for i := range 12 {
		require.Equal(t, s.ID+":"+strconv.Itoa(i+1), s.NewAcquisitionID())
	}
}

// The cause with which a session ends contexts is its own. One around it is of somebody else.
func TestTheCauseOfAClosingSessionIsItsOwn(t *testing.T) {
	s, other := New(Config{}), New(Config{})
	require.ErrorIs(t, s.CauseOfClose(), lockerr.ErrClosed)
	require.True(t, s.IsOwnEnd(s.CauseOfClose()))
	require.False(t, s.IsOwnEnd(other.CauseOfClose()))
	require.False(t, s.IsOwnEnd(errors.Join(s.CauseOfClose())))
	require.False(t, s.IsOwnEnd(nil))
}

// Code of the user may close the client, and wait for that, in the middle of a request.
func TestACallbackMayClose(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Session) {
		called, abandoned := 0, 0
		require.True(t, s.BeginRequest())
		require.True(t, s.RunCallback(func() { called++ }, func() { abandoned++ }))
		require.Equal(t, []int{1, 0}, []int{called, abandoned})
		require.False(t, s.RunCallback(func() { require.Zero(t, finish(t, s)) }, func() { abandoned++ }))
		require.Equal(t, 1, abandoned)
		require.Equal(t, 1, s.tasks.n, "the request is counted again")
		s.EndRequest()
		require.Zero(t, finish(t, s))
	})
}

// Closing waits for all lines of the log to be written, and no longer. They are written one by one.
func TestClosingWaitsForTheLogNoLongerThanNecessary(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *Session) {
		h := &recorder{Handler: slog.DiscardHandler, takes: 10 * time.Millisecond}
		s := New(Config{Log: slog.New(h)})
		s.WarnPublishDenied("channel")
		s.WarnPublishDenied("another")
		for range 2 {
			err := s.panicked("of a hook")
			require.ErrorIs(t, err, sender.ErrGoexit)
			require.ErrorContains(t, err, "panic: of a hook")
		}
		require.Equal(t, 20*time.Millisecond, finish(t, s))
		require.Len(t, h.lines, 2, "each is written once in the life of a client")
		require.EqualValues(t, 1, h.most)
	})
}

// recorder is a log handler that keeps the lines.
type recorder struct {
	slog.Handler
	takes      time.Duration
	mu         sync.Mutex
	busy, most int
	lines      []string
}

func (h *recorder) Enabled(context.Context, slog.Level) bool { return true }

func (h *recorder) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	h.busy++
	h.most = max(h.most, h.busy)
	h.mu.Unlock()
	time.Sleep(h.takes)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy--
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	h.lines = append(h.lines, line)
	return nil
}

// The first few holds that a program drops within a second have a line each. Another line counts
// the others. A client that closes reports none, because it releases them.
func TestDroppedHoldsAreReportedBySeconds(t *testing.T) {
	const one, more = "redlatch: a hold was dropped without Unlock; so", "redlatch: more holds or permits were dropped without Unlock or Release within a second holds="
	inBubble(t, func(t *testing.T, _ *Session) {
		h := &recorder{Handler: slog.DiscardHandler}
		s := New(Config{Log: slog.New(h)})
		drop := func(holds int) (lines []string) {
			h.lines = nil
			for range holds {
				s.ReportLeak("a hold was dropped without Unlock; so")
			}
			time.Sleep(time.Second)
			synctest.Wait()
			return h.lines
		}
		single := slices.Repeat([]string{one}, maxLeakLogs)
		require.NotEmpty(t, single)
		for range 2 {
			require.Equal(t, append(slices.Clone(single), more+"3"), drop(maxLeakLogs+3))
			require.Equal(t, single, drop(maxLeakLogs))
			require.Equal(t, single[:1], drop(1))
			require.Empty(t, drop(0))
		}
		finish(t, s)
		require.Empty(t, drop(1))
	})
}

// A request that is tried once ends when its first attempt has failed, for whatever reason.
func TestASingleAttemptIsTheOnlyOne(t *testing.T) {
	for name, err := range map[string]error{"no answer": io.EOF, "refused": answer("NOPERM this user has no permissions"), "granted": nil} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *Session) {
				ctx := SingleAttempt(t.Context())
				var observed []error
				call := Operation{
					Op: "lock", Name: "x", AttemptTimeout: time.Second, RetryRefused: true,
					Observer: attemptFunc(func(err error) { observed = append(observed, err) }),
				}
				require.False(t, call.ForContext(t.Context()).Once, "another call stays as it is")
				require.True(t, call.ForContext(ctx).RetryRefused)
				attempts := 0
				send := func(context.Context, lua.Redis, lua.Time) (int, error) { attempts++; return 0, err }
				_, got := Do(ctx, s, call.ForContext(ctx), send)
				require.Equal(t, 1, attempts)
				require.Equal(t, []error{err}, observed)
				require.NoError(t, ctx.Err())
				if err == nil {
					require.NoError(t, got)
				} else {
					require.ErrorIs(t, got, err)
				}
			})
		})
	}
}

// attemptFunc is an AttemptObserver.
type attemptFunc func(err error)

func (f attemptFunc) SetLastFailure(err error) { f(err) }

// The error of a wait says who was in the way, unless something else was wrong.
func TestTheErrorOfAWaitSaysWhatEndedIt(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Session) {
		call := Operation{Op: "lock", Name: "x"}
		refusal := &lockerr.NotAcquiredError{Name: "x", Holder: "somebody:1"}
		asked := &lockerr.OpError{Kind: lockerr.ErrUnavailable, Op: "lock", Name: "x"}
		unasked := &lockerr.OpError{Op: "lock", Name: "x"}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.Equal(t, io.EOF, s.WaitError(t.Context(), WaitEnd{Operation: call, Err: io.EOF, NotAcquired: refusal}))
		require.Equal(t, asked, s.WaitError(t.Context(), WaitEnd{Operation: call, Err: asked, NotAcquired: refusal}))
		require.Equal(t, refusal, s.WaitError(ended, WaitEnd{Operation: call, Err: ended.Err(), NotAcquired: refusal}))
		require.Equal(t, refusal, s.WaitError(ended, WaitEnd{Operation: call, Err: asked, Blocked: true, NotAcquired: refusal}))
		require.Equal(t, asked, s.WaitError(ended, WaitEnd{Operation: call, Err: asked, NotAcquired: refusal}))
		require.Equal(t, asked, s.WaitError(ended, WaitEnd{Operation: call, Err: asked, LastFailure: io.EOF, NotAcquired: refusal}))
		for _, err := range []error{unasked, ended.Err()} {
			got := s.WaitError(ended, WaitEnd{Operation: call, Err: err, LastFailure: io.EOF, NotAcquired: refusal})
			require.ErrorIs(t, got, lockerr.ErrUnavailable)
			require.ErrorIs(t, got, context.Canceled)
			require.ErrorIs(t, got, io.EOF)
		}
		s.BeginClose()
		require.Equal(t, &lockerr.OpError{Kind: lockerr.ErrClosed, Op: "lock", Name: "x"}, s.WaitError(t.Context(), WaitEnd{Operation: call, Err: asked}))
		require.Equal(t, refusal, s.WaitError(ended, WaitEnd{Operation: call, Err: ended.Err(), NotAcquired: refusal}), "its context ended too")
	})
}

// A wait timeout that ends before the command is sent is no fault of Redis, unless Redis could not
// be asked.
func TestTheEndOfTheTimeOfAWaitIsBusy(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Session) {
		ctx, cancel := WithDeadlineReason(t.Context(), time.Now(), "gave up")
		defer cancel()
		call := Operation{Op: "lock", Name: "x", StopOnClose: true}
		_, unsent := Do(ctx, s, call, func(context.Context, lua.Redis, lua.Time) (int, error) { panic("sends") })
		require.EqualError(t, unsent, `redlatch: lock "x": redis is not available: gave up`)
		refusal := &lockerr.NotAcquiredError{Name: "x"}
		require.Equal(t, refusal, s.WaitError(ctx, WaitEnd{Operation: call, Err: unsent, NotAcquired: refusal}))
		require.ErrorIs(t, s.WaitError(ctx, WaitEnd{Operation: call, Err: unsent, LastFailure: io.EOF, NotAcquired: refusal}), lockerr.ErrUnavailable)
		sent := &lockerr.OpError{Kind: lockerr.ErrIndeterminate, Op: "lock", Name: "x", Attempts: 1}
		require.Equal(t, sent, s.WaitError(ctx, WaitEnd{Operation: call, Err: sent, NotAcquired: refusal}))
	})
}

// Each kind of lease has its own command. A server that lacks a script gets the text, and one that
// refuses several slots is a cluster.
func TestEachKindOfLeaseIsRenewedByItsOwnCommand(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Session) {
		var answers []error
		var calls int
		var last context.Context
		s.SetRenewer(FairWaiters, func(ctx context.Context, _ lua.Redis, batch []watchdog.Renewal) ([]watchdog.Result, error) {
			err := answers[calls]
			calls, last = calls+1, ctx
			return slices.Repeat([]watchdog.Result{watchdog.Held}, len(batch)), err
		})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		renew := func(with []error, keys ...string) (got []watchdog.Result, err error) {
			answers, calls = with, 0
			var batch []watchdog.Renewal
			for _, k := range keys {
				batch = append(batch, watchdog.Renewal{Key: k})
			}
			got, err = s.renew(ended, s.Group(FairWaiters, "a"), batch)
			require.Equal(t, len(with), calls)
			return got, err
		}
		held := []watchdog.Result{watchdog.Held}
		got, err := renew([]error{nil}, "a")
		require.NoError(t, err)
		require.Equal(t, held, got)
		require.Error(t, last.Err())
		got, err = renew([]error{noScript{}, nil}, "a")
		require.NoError(t, err)
		require.Equal(t, held, got)
		require.NoError(t, last.Err(), "the answer of the first came late")
		_, err = renew([]error{io.EOF}, "a")
		require.ErrorIs(t, err, io.EOF)
		mixed := answer("CROSSSLOT Keys in request don't hash to the same slot")
		_, err = renew([]error{mixed}, "a")
		require.ErrorIs(t, err, mixed)
		_, err = renew([]error{io.EOF}, "a", "b")
		require.ErrorIs(t, err, io.EOF)
		require.False(t, s.Cluster())
		got, err = renew([]error{mixed}, "a", "b")
		require.NoError(t, err)
		require.Equal(t, make([]watchdog.Result, 2), got)
		require.True(t, s.Cluster())
		finish(t, s)
	})
}

// While a slot migrates, its names may be on different nodes. A node renews the names that it has.
func TestLeasesOfAMigratingSlotAreRenewedByName(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Session) {
		tryAgain := answer("TRYAGAIN Multiple keys request during rehashing of slot")
		var sent []string
		s.SetRenewer(Holds, func(_ context.Context, _ lua.Redis, batch []watchdog.Renewal) (got []watchdog.Result, err error) {
			var line string
			for _, r := range batch {
				line += r.ID
				if r.Key != batch[0].Key || r.Key == "split" {
					err = tryAgain
				}
				got = append(got, map[string]watchdog.Result{"a": watchdog.Renewed, "b": watchdog.Gone}[r.Key])
			}
			sent = append(sent, line)
			if err != nil {
				return nil, err
			}
			return got, nil
		})
		group := s.Group(Holds, "a")
		got, err := s.renew(t.Context(), group, []watchdog.Renewal{{Key: "a", ID: "1"}, {Key: "b", ID: "2"}, {Key: "split", ID: "3"}, {Key: "a", ID: "4"}})
		require.ErrorIs(t, err, tryAgain, "why not all were renewed")
		require.Equal(t, []watchdog.Result{watchdog.Renewed, watchdog.Gone, watchdog.Unknown, watchdog.Renewed}, got)
		require.Equal(t, "1234", sent[0])
		require.ElementsMatch(t, []string{"14", "2", "3"}, sent[1:])

		sent = nil
		got, err = s.renew(t.Context(), group, []watchdog.Renewal{{Key: "a", ID: "1"}, {Key: "b", ID: "2"}})
		require.NoError(t, err)
		require.Equal(t, []watchdog.Result{watchdog.Renewed, watchdog.Gone}, got)
		sent = nil
		_, err = s.renew(t.Context(), group, []watchdog.Renewal{{Key: "split", ID: "1"}, {Key: "split", ID: "2"}})
		require.ErrorIs(t, err, tryAgain)
		require.Equal(t, []string{"12"}, sent, "another command for one name would end the same way")

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		sent = nil
		_, _ = s.renew(ended, group, []watchdog.Renewal{{Key: "a", ID: "1"}, {Key: "b", ID: "2"}})
		require.Len(t, sent, 2, "the watchdog does not wait for more")
		finish(t, s)
	})
}

// In a cluster, commands for keys of several slots cannot share a call.
func TestLeasesShareCallsBySlotInACluster(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Session) {
		require.Equal(t, watchdog.Group{Kind: int(Permits)}, s.Group(Permits, "render"))
		s.FoundCluster()
		slot := key.Slot(key.ForSemaphore("render").Permits)
		require.NotZero(t, slot)
		require.Equal(t, watchdog.Group{Kind: int(Permits), Slot: slot}, s.Group(Permits, "render"))
		require.Equal(t, watchdog.Group{Kind: int(Holds), Slot: slot}, s.Group(Holds, "render"))
		finish(t, s)
	})
}

// All leases of one kind can be renewed at once. They keep their kind when they are regrouped.
func TestLeasesOfOneKindAreRenewedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Session) {
		renewed := map[LeaseKind]int{}
		for _, kind := range []LeaseKind{FairWaiters, PermitWaiters} {
			s.SetRenewer(kind, func(_ context.Context, _ lua.Redis, batch []watchdog.Renewal) ([]watchdog.Result, error) {
				renewed[kind] += len(batch)
				return slices.Repeat([]watchdog.Result{watchdog.Renewed}, len(batch)), nil
			})
			s.Watchdog.Watch(watchdog.Spec{
				Key: "x", ID: s.NewAcquisitionID(), Group: s.Group(kind, "x"), Lease: time.Hour, Margin: time.Second,
				Interval: time.Hour / 3, Renew: true, Sent: time.Now(), OnLost: watchdog.LossFunc(func(watchdog.Reason) {}),
			})
		}
		s.RenewNow(FairWaiters)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, map[LeaseKind]int{FairWaiters: 1}, renewed)
		s.FoundCluster()
		s.RenewNow(PermitWaiters)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, map[LeaseKind]int{FairWaiters: 1, PermitWaiters: 1}, renewed)
		finish(t, s)
	})
}

// Each answer of a renewal means the same to the watchdog. If all are refused, that is an error.
func TestAnswersOfRenewals(t *testing.T) {
	got, err := RenewAnswers([]lua.RenewAnswer{lua.RenewDone, lua.RenewHeld, lua.RenewGone, lua.RenewRefused})
	require.NoError(t, err)
	require.Equal(t, []watchdog.Result{watchdog.Renewed, watchdog.Held, watchdog.Gone, watchdog.Unknown}, got)
	_, err = RenewAnswers([]lua.RenewAnswer{lua.RenewRefused, lua.RenewRefused})
	require.ErrorIs(t, err, errRenewalRefused)
	_, err = RenewAnswers([]lua.RenewAnswer{lua.RenewDone})
	require.NoError(t, err)

	s := New(Config{Redis: processFunc(func(context.Context, redis.Cmder) error { return io.EOF })})
	_, err = s.renew(t.Context(), s.Group(Holds, "x"), []watchdog.Renewal{{Key: "x", ID: s.NewAcquisitionID()}})
	require.ErrorIs(t, err, io.EOF)
}

// An attempt that no answer comes for, within a window, makes later ones longer.
func TestAnAdaptiveTimeoutGrowsWithWindowsAndFollowsAnswers(t *testing.T) {
	var p *AdaptiveTimeout
	p.onAnswer(time.Second)
	p.onExpired(time.Second)
	require.LessOrEqual(t, p.value(), time.Duration(1))
	p = new(AdaptiveTimeout)
	for _, want := range []time.Duration{1, 2, 4, 8} {
		p.onExpired(time.Second)
		require.Equal(t, want*time.Second, p.value())
	}
	p.onAnswer(3 * time.Second)
	require.Equal(t, 6*time.Second, p.value())
}

// Pauses get longer up to a bound, by chance, and end with the context of the call, or when the
// client closes if the call stops for that.
func TestPausesBetweenAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Session) {
		pause := func(ctx context.Context, c Operation, tries int) (took time.Duration, goOn bool) {
			began := time.Now()
			goOn = s.backoff(ctx, c, tries)
			return time.Since(began), goOn
		}
		for tries, most := range map[int]time.Duration{0: 5 * time.Millisecond, 1: 10 * time.Millisecond, 6: 320 * time.Millisecond, 7: 500 * time.Millisecond, 100: 500 * time.Millisecond} {
			for _, bound := range []time.Duration{0, 20 * time.Millisecond, time.Second} {
				most := most
				if bound > 0 {
					most = min(most, bound)
				}
				var longest time.Duration
				for range 200 {
					took, goOn := pause(t.Context(), Operation{MaxBackoff: bound}, tries)
					require.True(t, goOn)
					require.GreaterOrEqual(t, took, most/2)
					require.Less(t, took, most)
					longest = max(longest, took)
				}
				require.Greater(t, longest, most*9/10)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		took, goOn := pause(ctx, Operation{}, 100)
		require.False(t, goOn)
		require.Equal(t, time.Millisecond, took)
		s.BeginClose()
		took, goOn = pause(t.Context(), Operation{StopOnClose: true}, 100)
		require.False(t, goOn)
		require.Zero(t, took)
		_, goOn = pause(t.Context(), Operation{}, 100)
		require.True(t, goOn)
	})
}

// A call that stops when the client closes sends nothing after that. A release goes on. Closing
// waits for it, and ends both when it waits no longer. After that, nothing is sent.
func TestClosingStopsCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Session) {
		var sent atomic.Int64
		s = fresh(t, Config{Redis: processFunc(func(context.Context, redis.Cmder) error {
			sent.Add(1)
			time.Sleep(time.Minute)
			return nil
		})})
		call := func(stops bool) error {
			_, err := Do(t.Context(), s, Operation{Op: "lock", Name: "x", AttemptTimeout: 100 * time.Millisecond, StopOnClose: stops}, isSent)
			return err
		}
		ended := make(chan error, 2)
		go func() { ended <- call(true) }()
		go func() { ended <- call(false) }()
		synctest.Wait()
		began := time.Now()
		s.BeginClose()
		before := sent.Load()
		require.ErrorIs(t, call(true), lockerr.ErrClosed)
		require.Equal(t, before, sent.Load())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, s.FinishClose(ctx))
		require.Equal(t, time.Second, time.Since(began), "the release ends immediately")
		require.Greater(t, sent.Load(), before, "the release went on")
		for range 2 {
			require.ErrorIs(t, <-ended, lockerr.ErrClosed)
		}
		before = sent.Load()
		for _, stops := range []bool{true, false} {
			require.ErrorIs(t, call(stops), lockerr.ErrClosed)
		}
		require.Equal(t, before, sent.Load())
		time.Sleep(time.Minute) // the attempts end

		refusal := answer("NOPERM this user has no permissions")
		_, err := Do(t.Context(), fresh(t, Config{}), Operation{Op: "lock", Name: "x", AttemptTimeout: time.Second},
			func(context.Context, lua.Redis, lua.Time) (int, error) { return 0, refusal })
		require.ErrorIs(t, err, lockerr.ErrRefused)
	})
}

// Closing waits for a release in progress, as long as its context lives.
func TestClosingWaitsForARelease(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Session) {
		released := make(chan error, 1)
		go func() {
			_, err := Do(t.Context(), s, Operation{Op: "unlock", Name: "x", AttemptTimeout: time.Minute},
				func(context.Context, lua.Redis, lua.Time) (int, error) { time.Sleep(time.Second); return 0, nil })
			released <- err
		}()
		synctest.Wait()
		s.BeginClose()
		began := time.Now()
		require.NoError(t, s.FinishClose(t.Context()))
		require.Equal(t, time.Second, time.Since(began))
		require.NoError(t, <-released)
	})
}

// A call whose context has ended sends nothing, and says only that.
func TestACallOfAnEndedContextSendsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Session) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := Do(ctx, s, Operation{Op: "lock", Name: "x", AttemptTimeout: time.Second, StopOnClose: true},
			func(context.Context, lua.Redis, lua.Time) (int, error) { require.Fail(t, "sent"); return 0, nil })
		var failed *lockerr.OpError
		require.ErrorAs(t, err, &failed)
		require.NoError(t, failed.Kind)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// Two attempts may come too late while the server's clock is not known well. They count as no
// failures, and are repeated at once. A third one is a failure.
func TestAVoidAttemptIsRepeatedAtOnceTwice(t *testing.T) {
	for voids, observed := range map[int][]error{0: {nil}, 1: {nil}, 2: {nil}, 3: {errVoid, nil}} {
		inBubble(t, func(t *testing.T, s *Session) {
			var got []error
			began, attempts := time.Now(), 0
			var pace AdaptiveTimeout
			call := Operation{Op: "lock", Name: "x", AttemptTimeout: time.Second, Adaptive: &pace, Observer: attemptFunc(func(err error) { got = append(got, err) })}
			_, err := Do(t.Context(), s, call, func(context.Context, lua.Redis, lua.Time) (int, error) {
				if attempts++; attempts <= voids {
					return 0, s.checkReply("x", lua.Void, s.Now("x"))
				}
				time.Sleep(100 * time.Millisecond)
				return 1, nil
			})
			require.NoError(t, err)
			require.Equal(t, observed, got)
			require.Equal(t, voids < 3, time.Since(began) == 100*time.Millisecond)
			require.Equal(t, 200*time.Millisecond, pace.value(), "what the answer taught")
		})
	}
}

// An attempt goes unanswered for a part of the window, but for an instant at least. Where answers
// are known to take longer, it goes on for that long, within bounds.
func TestHowLongAnAttemptGoesUnanswered(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, c := range []struct {
		call               Operation
		since, known, want time.Duration
	}{
		{Operation{AttemptTimeout: 2 * s}, 0, 0, 2 * s},
		{Operation{AttemptTimeout: 2 * s}, 9 * s, 5 * s, 5 * s},
		{Operation{AttemptTimeout: 2 * s}, 0, 9 * s, 8 * s},
		{Operation{AttemptTimeout: 2 * s, Window: 4 * s}, 0, 0, s},
		{Operation{AttemptTimeout: 2 * s, Share: 4 * s}, 0, 0, s},
		{Operation{AttemptTimeout: 2 * s, Window: 2 * s, Share: 4 * s}, 0, 0, s},
		{Operation{AttemptTimeout: 2 * s, Window: 4 * s}, 1500 * ms, 0, 1500 * ms},
		{Operation{AttemptTimeout: 2 * s, Window: 4 * s}, 3 * s, 0, 2 * s},
		{Operation{AttemptTimeout: 2 * s, Window: 4 * s, Adaptive: &AdaptiveTimeout{min: 1700 * ms}}, 0, 0, 1700 * ms},
		{Operation{AttemptTimeout: 2 * s, Window: 4 * s}, 0, 9 * s, 4 * s},
		{Operation{AttemptTimeout: 2 * s, Window: 100 * ms}, 0, 0, 50 * ms},
		{Operation{AttemptTimeout: 20 * ms, Window: 100 * ms}, 0, 0, 20 * ms},
	} {
		require.Equal(t, c.want, c.call.timeoutFor(c.since, c.known), "%+v", c)
	}
}

// The result of failed attempts depends on what each may have done, and on the server's last word.
func TestWhatFailuresAmountTo(t *testing.T) {
	type failed struct {
		err    error
		unsent bool
	}
	noPerm, broken, loading := answer("NOPERM you may not"), answer("ERR it is broken"), answer("LOADING the data")
	const effect, final = true, true
	for name, c := range map[string]struct {
		attempts      []failed
		kind          error
		effect, final bool
		cause         string
	}{
		"broken off":                    {[]failed{{io.EOF, false}}, lockerr.ErrIndeterminate, effect, !final, "EOF"},
		"broken off before":             {[]failed{{io.EOF, true}}, lockerr.ErrUnavailable, effect, !final, "EOF"},
		"no connection":                 {[]failed{{redis.ErrPoolTimeout, true}}, lockerr.ErrUnavailable, !effect, !final, redis.ErrPoolTimeout.Error()},
		"no connection, says a hook":    {[]failed{{redis.ErrPoolTimeout, false}}, lockerr.ErrUnavailable, effect, !final, redis.ErrPoolTimeout.Error()},
		"loading":                       {[]failed{{loading, false}}, lockerr.ErrUnavailable, !effect, !final, "LOADING the data"},
		"closed":                        {[]failed{{redis.ErrClosed, true}}, lockerr.ErrClosed, !effect, final, redis.ErrClosed.Error()},
		"closed, says a hook":           {[]failed{{redis.ErrClosed, false}}, lockerr.ErrClosed, effect, final, redis.ErrClosed.Error()},
		"refused":                       {[]failed{{noPerm, false}}, lockerr.ErrRefused, !effect, final, "NOPERM you may not"},
		"failed":                        {[]failed{{broken, false}}, lockerr.ErrIndeterminate, effect, final, "ERR it is broken"},
		"failed at the login":           {[]failed{{broken, true}}, lockerr.ErrRefused, !effect, final, "ERR it is broken"},
		"a hook ended it":               {[]failed{{sender.ErrGoexit, false}}, lockerr.ErrIndeterminate, effect, final, sender.ErrGoexit.Error()},
		"a hook ended it before":        {[]failed{{sender.ErrGoexit, true}}, lockerr.ErrUnavailable, !effect, final, sender.ErrGoexit.Error()},
		"no answer":                     {[]failed{{sender.ErrUnanswered, false}}, lockerr.ErrIndeterminate, effect, !final, "no answer in time"},
		"broken off, then no answer":    {[]failed{{io.EOF, false}, {sender.ErrUnanswered, true}}, lockerr.ErrIndeterminate, effect, !final, "EOF; no answer in time"},
		"void":                          {[]failed{{errVoid, false}}, lockerr.ErrUnavailable, !effect, !final, errVoid.Error()},
		"refused, then void":            {[]failed{{noPerm, false}, {errVoid, false}}, lockerr.ErrUnavailable, !effect, !final, errVoid.Error()},
		"refused, then loading":         {[]failed{{noPerm, false}, {loading, false}}, lockerr.ErrUnavailable, !effect, !final, "LOADING the data"},
		"refused, then failed":          {[]failed{{noPerm, false}, {broken, false}}, lockerr.ErrIndeterminate, effect, final, "ERR it is broken"},
		"failed, then refused":          {[]failed{{broken, false}, {noPerm, false}}, lockerr.ErrIndeterminate, !effect, final, lockerr.ErrRefused.Error() + ": NOPERM you may not"},
		"refused, then not sent":        {[]failed{{noPerm, false}, {sender.ErrUnanswered, true}}, lockerr.ErrRefused, effect, final, "NOPERM you may not"},
		"refused, then broken off":      {[]failed{{noPerm, false}, {io.EOF, false}}, lockerr.ErrIndeterminate, effect, final, lockerr.ErrRefused.Error() + ": NOPERM you may not; EOF"},
		"broken off, then ended before": {[]failed{{io.EOF, false}, {sender.ErrGoexit, true}}, lockerr.ErrIndeterminate, !effect, final, sender.ErrGoexit.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			var v failure
			var effect bool
			for _, a := range c.attempts {
				effect = v.add(a.err, a.unsent, time.Now())
			}
			require.Equal(t, c.kind, v.kind())
			require.Equal(t, c.effect, effect)
			require.Equal(t, c.final, v.isFinal(Operation{}))
			require.Equal(t, v.closed, v.isFinal(Operation{RetryRefused: true}))
			require.EqualError(t, v.cause(nil), c.cause)
			specific := ErrWindowExpired
			if v.specific != nil {
				specific = v.specific.err
			}
			require.ErrorIs(t, v.cause(ErrWindowExpired), specific)
			if v.refused == nil {
				require.ErrorIs(t, v.cause(ErrWindowExpired), ErrWindowExpired)
			}
		})
	}
	var v failure
	require.Equal(t, ErrWindowExpired, v.cause(ErrWindowExpired))
}

// The error of a call says that no connection came, unless the client was closed.
func TestOnlyAnOpenClientLacksConnections(t *testing.T) {
	for err, lacks := range map[error]bool{redis.ErrPoolTimeout: true, redis.ErrClosed: false} {
		synctest.Test(t, func(t *testing.T) {
			s := fresh(t, Config{Redis: unsentErrors{err}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, got := Do(ctx, s, Operation{Op: "lock", Name: "x", AttemptTimeout: time.Second}, isSent)
			require.Equal(t, lacks, errors.Is(got, errUnsent))
			require.ErrorIs(t, got, err)
		})
	}
}

// unsentErrors is a client that fails before it writes.
type unsentErrors struct{ err error }

func (c unsentErrors) Process(context.Context, redis.Cmder) error { return c.err }

// A late answer that a server lacks a script has the text sent until an answer comes.
func TestALateNoScriptIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []any
		s := fresh(t, Config{Redis: processFunc(func(_ context.Context, cmd redis.Cmder) error {
			sent = append(sent, cmd.Args()[0])
			return nil
		})})
		s.serverFor("x").link.onLateAnswer(noScript{}, time.Second)
		for range 2 {
			_, err := Do(t.Context(), s, Operation{Op: "lock", Name: "x", AttemptTimeout: time.Minute}, isAnswered)
			require.NoError(t, err)
		}
		require.Equal(t, []any{"eval", "evalsha"}, sent)
	})
}
