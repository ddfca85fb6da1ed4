package redlatch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// The goal of this file: the nightly job of docs/choosing.md runs until one replica has done it, and once.

func TestAFailedNightlyJobIsRunByAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("no space left")
		runs := 0
		whole := runNightly
		defer func() { runNightly = whole }()
		runNightly = func(context.Context) error {
			runs++
			time.Sleep(10 * time.Second)
			if runs == 1 {
				return failed
			}
			return nil
		}
		server := redistest.Bubble(t)
		results := make(chan error, 3)
		for range 3 {
			locks := locksOn(t, server.Another().Client())
			go func() { results <- nightly(t.Context(), locks, time.Now()) }()
		}
		require.ErrorIs(t, <-results, failed)
		require.NoError(t, <-results)
		require.NoError(t, <-results)
		require.Equal(t, 2, runs)
	})
}
