package acquisition_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acquisition"
)

// request stands for the method that a user calls.
func request() acquisition.CallSite { return acquisition.CallerSite() }

// here is the line of its caller.
func here() string {
	_, file, line, _ := runtime.Caller(1)
	return fmt.Sprintf("%s:%d", file, line)
}

func TestACallSiteIsTheLineOfTheUser(t *testing.T) {
	site, want := request(), here()
	require.Equal(t, want, site.String())
	require.Equal(t, "unknown", acquisition.CallSite{}.String())
}

// go mu.Do(ctx, fn) leaves no line of the program.
func TestACallSiteIsNoLineOfTheRuntime(t *testing.T) {
	sites := make(chan acquisition.CallSite)
	go acquisition.SendCallSite(sites)
	site := <-sites
	require.Equal(t, "unknown", site.String())
	require.False(t, site.IsKnown())
	require.True(t, request().IsKnown())
}

func TestTheOldestHoldIsTheFirstThatIsOpen(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, _ := s.start()
		site, second := request(), here()
		inner, err := h.A.Reenter(context.Background(), site)
		require.NoError(t, err)
		require.NotEqual(t, second, h.A.OldestCallSite().String())
		s.unlock(h)
		require.Equal(t, second, h.A.OldestCallSite().String())
		s.unlock(inner)
		require.Equal(t, acquisition.CallSite{}, h.A.OldestCallSite())
	})
}
