package redlatchtest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// It leaves no goroutine behind, whatever the test has done. Not parallel, because others have
// goroutines.
func TestNothingRunsAfterATest(t *testing.T) {
	fails := map[string]bool{"holds": true, "down": true, "ends": true}
	for name, do := range map[string]func(s *redlatchtest.Server){
		"nothing": func(*redlatchtest.Server) {},
		"holds": func(s *redlatchtest.Server) {
			for _, k := range kinds {
				if _, err := k.lock(context.Background(), s.NewClient(redlatch.WithPrefix(k.name+":"))); err != nil {
					panic(err)
				}
			}
		},
		"elsewhere": func(s *redlatchtest.Server) {
			s.HoldElsewhere("door")
			s.AcquireElsewhere("door", 3, 3)
		},
		"lost": func(s *redlatchtest.Server) {
			s.HoldElsewhere("door")
			s.Lose("door")
		},
		"advanced": func(s *redlatchtest.Server) {
			s.HoldElsewhere("door")
			s.Advance(time.Hour)
		},
		"down": func(s *redlatchtest.Server) {
			_, err := s.Client.Mutex("door").Lock(context.Background())
			s.Down()
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			_, refused := s.NewClient().FairMutex("other").Lock(ctx)
			if err != nil || !errors.Is(refused, redlatch.ErrUnavailable) {
				panic(errors.Join(err, refused))
			}
		},
		"ends": func(s *redlatchtest.Server) {
			s.HoldElsewhere("door")
			s.HoldElsewhere("door") // t.Fatal
		},
	} {
		before := goleak.IgnoreCurrent()
		failures, _ := run(func(t testing.TB) { do(redlatchtest.New(t)) })
		require.NoError(t, goleak.Find(before), name)
		require.Equal(t, fails[name], len(failures) > 0, "%s: %v", name, failures)
	}
}

func TestManyServersAtOnce(t *testing.T) {
	t.Parallel()
	for n := range 10 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			everywhere(t, func(t *testing.T) {
				s := redlatchtest.New(t)
				for _, k := range kinds {
					h := k.mustLock(t, s.Client) // all servers have the same names
					s.Lose("door")
					requireLost(t, h)
				}
			})
		})
	}
}

func TestMisuseEndsTheTest(t *testing.T) {
	t.Parallel()
	for message, misuse := range map[string]func(t testing.TB){
		`redlatchtest: redlatch: lease (WithLease) is 1ns: `: func(t testing.TB) { redlatchtest.New(t, redlatch.WithLease(1)) },
		`redlatchtest: redlatch: lease (WithLease) is 2ns: `: func(t testing.TB) { redlatchtest.New(t).NewClient(redlatch.WithLease(2)) },
		`redlatchtest: HoldElsewhere: redlatch: lock "door" not acquired: `: func(t testing.TB) {
			s := redlatchtest.New(t)
			_, _ = s.Client.FairMutex("door").Lock(context.Background())
			s.HoldElsewhere("door")
		},
		`redlatchtest: AcquireElsewhere: redlatch: semaphore "door" not acquired: 2 of 3 in use`: func(t testing.TB) {
			s := redlatchtest.New(t)
			_, _ = s.Client.Semaphore("door", 3).Acquire(context.Background(), 2)
			s.AcquireElsewhere("door", 3, 2)
		},
		`redlatchtest: Lose: nobody holds "door"`:     func(t testing.TB) { redlatchtest.New(t).Lose("door") },
		`redlatchtest: Lose: redlatch: lock name is `: func(t testing.TB) { redlatchtest.New(t).Lose("a\nb") },
		`redlatchtest: Advance by -1s: the clock only goes ahead`: func(t testing.TB) {
			redlatchtest.New(t).Advance(-time.Second)
		},
		`redlatchtest: FailNext: there is no operation "fly"`: func(t testing.TB) { redlatchtest.New(t).FailNext("fly", errBoom) },
		`redlatchtest: FailNext(lock) without an error`: func(t testing.TB) {
			redlatchtest.New(t).FailNext(redlatchtest.OpLock, nil)
		},
		`redlatchtest: FailNext: redlatch: not acquired is no error reply of Redis: use HoldElsewhere`: func(t testing.TB) {
			redlatchtest.New(t).FailNext(redlatchtest.OpLock, redlatch.ErrNotAcquired)
		},
		`redlatchtest: FailNext(renew, "boom: it broke"): no such command came`: func(t testing.TB) {
			redlatchtest.New(t).FailNext(redlatchtest.OpRenew, errBoom)
		},
	} {
		everywhere(t, func(t *testing.T) {
			failures, _ := run(misuse)
			require.Len(t, failures, 1)
			require.Contains(t, failures[0], message)
		})
	}
}

// A test that failed says why, and not also what did not happen afterwards.
func TestATestThatFailedHasOneReason(t *testing.T) {
	t.Parallel()
	failures, _ := run(func(t testing.TB) {
		redlatchtest.New(t).FailNext(redlatchtest.OpRenew, errBoom)
		t.Errorf("the reason")
	})
	require.Equal(t, []string{"the reason"}, failures)
}

// A program that forgets an Unlock fails its test, and the failure says where it acquired the lock.
func TestAForgottenUnlockFailsTheTest(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		ctx := t.Context()
		var lost, forgotten held
		failures, _ := run(func(t testing.TB) {
			s := redlatchtest.New(t)
			var err error
			if lost, err = k.lock(ctx, s.NewClient()); err == nil {
				s.Lose("door")
				<-lost.lost // nothing to unlock
				forgotten, err = k.lock(ctx, s.NewClient())
			}
			if err != nil {
				panic(err)
			}
			s.HoldElsewhere("other") // no program
		})
		require.Len(t, failures, 1)
		require.Regexp(t, `^redlatchtest: the program still has "door", acquired at .*kinds_test.go:\d+, when the test ends$`, failures[0])
		runtime.KeepAlive(forgotten.release) // the collector drops it otherwise
	})
}

// A worker ends with the context of its test, and unlocks a moment later.
func TestAWorkerMayUnlockAMomentAfterTheTest(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		ctx := t.Context()
		released := make(chan error, 1)
		failures, _ := run(func(t testing.TB) {
			h, err := k.lock(ctx, redlatchtest.New(t).Client)
			if err != nil {
				panic(err)
			}
			go func() {
				time.Sleep(50 * time.Millisecond)
				released <- h.release(ctx)
			}()
		})
		require.Empty(t, failures)
		require.NoError(t, <-released)
	})
}

func TestAClosedClientHasForgottenNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		ctx := t.Context()
		failures, _ := run(func(t testing.TB) {
			s := redlatchtest.New(t)
			_, err := k.lock(ctx, s.Client)
			if err = errors.Join(err, s.Client.Close(ctx)); err != nil {
				panic(err)
			}
		})
		require.Empty(t, failures)
	})
}

func TestLogsGoToTheOutputOfTheTest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failures, output := run(func(t testing.TB) {
			s := redlatchtest.New(t)
			h, err := s.Client.Mutex("door").Lock(context.Background())
			s.FailNext(redlatchtest.OpRenew, errBoom)
			time.Sleep(lease)
			if err = errors.Join(err, h.Unlock(context.Background())); err != nil {
				panic(err)
			}
		})
		require.Empty(t, failures)
		require.Contains(t, output, "renewals began to fail")
		require.Contains(t, output, "boom: it broke")
	})
}

// Do has returned, but while Redis was away, another command of the lock was in flight, so the
// background finishes the release. The program has nothing to unlock.
func TestALockThatTheBackgroundReleasesIsNotHeld(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			server := redlatchtest.New(t)
			outer, inner := server.Client.Mutex("orders:42"), server.Client.Mutex("accounts:a")
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			require.ErrorIs(t, outer.Do(ctx, func(ctx context.Context) error {
				return inner.Do(ctx, func(ctx context.Context) error {
					server.Down()
					return outer.Do(ctx, func(context.Context) error { return nil })
				})
			}), redlatch.ErrUnavailable)
		})
	}
}
