package semaphore_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// A release during a migration only frees the units, because no node has all keys. The client does
// the rest when the slot has moved, so that no description stays.
func TestAReleaseOfASplitPermitIsFinishedLater(t *testing.T) {
	for who, isDown := range map[string]bool{"the call frees the units": false, "the background frees the units": true} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				cluster := v.Cluster(2)
				locks, err := redlatch.New(v.ClusterClient(cluster), redlatch.WithLease(10*time.Minute))
				require.NoError(t, err)
				defer func() {
					require.NoError(t, locks.Close(context.Background()))
					time.Sleep(time.Minute) // connections of go-redis end
				}()
				const name = "render"
				held := func() int {
					info, err := locks.Semaphore(name, 1).Inspect(t.Context())
					require.NoError(t, err)
					return info.InUse
				}
				permit, err := locks.Semaphore(name, 1).Acquire(t.Context(), 1)
				require.NoError(t, err)

				cluster.StartMigration(name)
				moved := cluster.MoveKeys(func(key string) bool { return strings.HasPrefix(key, "redlatch:holders:") })
				require.Equal(t, 1, moved)
				cluster.SetDown(isDown)
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err = permit.Release(short)
				require.Equal(t, isDown, err != nil, "%v", err)
				cluster.SetDown(false)
				time.Sleep(10 * time.Second)
				require.True(t, v.Server.Exists("redlatch:holders:{"+name+"}"), "its key is on the other node")
				cluster.EndMigration()
				require.Zero(t, held())

				time.Sleep(10 * time.Second)
				require.False(t, v.Server.Exists("redlatch:holders:{"+name+"}"))
			})
		})
	}
}
