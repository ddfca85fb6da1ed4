package session

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A node that failed makes go-redis learn the topology anew, twice a second at most.
func TestAFailedNodeReloadsTheTopology(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reloads := 0
		topo := topology{reload: func() { reloads++ }}
		ctx := t.Context()
		topo.onFailure(ctx, io.EOF)
		require.Equal(t, 1, reloads)
		for range 100 {
			time.Sleep(10 * time.Millisecond)
			topo.onFailure(ctx, io.EOF)
		}
		require.Equal(t, 3, reloads)
	})
}

func TestWhichFailuresReloadTheTopology(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	for name, c := range map[string]struct {
		ctx    context.Context
		err    error
		reload bool
	}{
		"no error":                       {ctx: t.Context()},
		"a connection that ended":        {ctx: t.Context(), err: io.EOF, reload: true},
		"no connection":                  {ctx: t.Context(), err: &net.OpError{Op: "dial", Err: errors.New("refused")}, reload: true},
		"no answer in time":              {ctx: late, err: context.DeadlineExceeded, reload: true},
		"a cluster that is down":         {ctx: t.Context(), err: answer("CLUSTERDOWN the cluster is down"), reload: true},
		"a caller that left":             {ctx: cancelled, err: context.Canceled},
		"a script that the node forgot":  {ctx: t.Context(), err: answer("NOSCRIPT no matching script")},
		"a node in a long script":        {ctx: t.Context(), err: answer("BUSY running a script")},
		"a refusal":                      {ctx: t.Context(), err: answer("NOPERM no permission")},
		"a go-redis client that is over": {ctx: t.Context(), err: redis.ErrClosed},
	} {
		reloaded := false
		topo := topology{reload: func() { reloaded = true }}
		topo.onFailure(c.ctx, c.err)
		require.Equal(t, c.reload, reloaded, name)
	}
	(&topology{}).onFailure(t.Context(), io.EOF) // no cluster
}
