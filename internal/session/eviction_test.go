package session

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
)

// Each renewal may be the first that Redis answers.
func TestOneRenewalLooksForEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		s := fresh(t, Config{Deployment: node.Deployment{FindEviction: func(context.Context) (addr, policy string) {
			looks++
			return "", ""
		}}})
		for range 3 {
			s.checkEviction()
			synctest.Wait()
		}
		require.Equal(t, 1, looks)
	})
}

func TestAClientThatKnowsNoServerLooksForNoEviction(t *testing.T) {
	s := New(Config{})
	s.checkEviction()
	require.False(t, s.evictionChecked.Load())
}
