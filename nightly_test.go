package redlatch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keptid"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// The goal of this file: the nightly job of docs/choosing.md runs until one replica has done it,
// and once.

// night runs nightly on so many replicas in virtual time. It returns how often the job ran, and
// what each replica returned. job gets the number of its run.
func night(t *testing.T, replicas int, begin func(s *redistest.Virtual), job func(s *redistest.Virtual, run int) error) (runs int, results []error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Hour) }) // last of all: outages end, and go-redis dials in the background
		server := redistest.Bubble(t)
		whole := runNightly
		defer func() { runNightly = whole }()
		var done atomic.Bool
		runNightly = func(context.Context) error {
			runs++
			err := job(server, runs)
			done.Store(err == nil)
			return err
		}
		all := make(chan error, replicas)
		begin(server)
		for range replicas {
			locks := stage.LocksOn(t, server.Client())
			go func() {
				err := nightly(t.Context(), locks, time.Now())
				assert.True(t, done.Load(), "it returns before the job is done")
				all <- err
			}()
		}
		for range replicas {
			results = append(results, <-all)
		}
	})
	return runs, results
}

// downFor makes the server unreachable for d.
func downFor(s *redistest.Virtual, d time.Duration) {
	s.Down()
	go func() {
		time.Sleep(d)
		s.Up()
	}()
}

func TestTheNightlyJobIsDoneOnceDespiteFaults(t *testing.T) {
	nothing := func(*redistest.Virtual) {}
	quick := func(*redistest.Virtual, int) error { return nil }
	for name, c := range map[string]struct {
		begin func(s *redistest.Virtual)
		job   func(s *redistest.Virtual, run int) error
		runs  int
	}{
		"no fault": {nothing, quick, 1},
		"the job fails": {nothing, func(_ *redistest.Virtual, run int) error {
			time.Sleep(10 * time.Second)
			if run < 3 {
				return errors.New("no space left")
			}
			return nil
		}, 3},
		"the job finds a lock of its own kept": {nothing, func(_ *redistest.Virtual, run int) error {
			if run == 1 {
				return &redlatch.NotAcquiredError{Name: "accounts", Holder: keptid.New()}
			}
			return nil
		}, 2},
		"no Redis at the start": {func(s *redistest.Virtual) { downFor(s, 10*time.Minute) }, quick, 1},
		"no Redis while others look": {nothing, func(s *redistest.Virtual, _ int) error {
			time.Sleep(58 * time.Second)
			downFor(s, 10*time.Second) // shorter than a lease, and longer than a TryDo
			time.Sleep(time.Minute)
			return nil
		}, 1},
		"no Redis for a moment at the end": {nothing, func(s *redistest.Virtual, _ int) error {
			downFor(s, 6*time.Second)
			return nil
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			runs, results := night(t, 3, c.begin, c.job)
			require.Equal(t, c.runs, runs)
			for _, err := range results {
				require.NoError(t, err)
			}
		})
	}
}

// Time does not mend these.
func TestTheNightlyJobEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := stage.LocksOn(t, redistest.Bubble(t).Client())
		require.NoError(t, locks.Close(t.Context()))
		require.ErrorIs(t, nightly(t.Context(), locks, time.Now()), redlatch.ErrClosed)
		require.ErrorIs(t, nightly(t.Context(), new(redlatch.Client), time.Now()), redlatch.ErrConfig)
	})
}

// The replica that has done the job does not repeat it, and does not return before Redis knows that
// it is done. So a replica that starts later does not repeat it either.
func TestTheNightlyJobIsDoneForReplicasThatComeAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Hour) }) // last of all, as in night
		server := redistest.Bubble(t)
		whole := runNightly
		defer func() { runNightly = whole }()
		runs := 0
		runNightly = func(context.Context) error {
			runs++
			downFor(server, 30*time.Minute)
			return nil
		}
		when := time.Now()
		require.NoError(t, nightly(t.Context(), stage.LocksOn(t, server.Client()), when))
		require.GreaterOrEqual(t, time.Since(when), 30*time.Minute)
		require.NoError(t, nightly(t.Context(), stage.LocksOn(t, server.Client()), when))
		require.Equal(t, 1, runs)
	})
}
