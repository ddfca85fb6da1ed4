package session

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// noSlots is a cluster that does not say which master serves which slots.
func noSlots(context.Context) ([]node.SlotRange, error) { return nil, io.EOF }

func TestNodesOfSlots(t *testing.T) {
	var err error
	answer := []node.SlotRange{{First: 9000, Last: 16383, Master: "c:1"}, {First: 10, Last: 99, Master: "a:1"}, {First: 100, Last: 100, Master: "b:1"}, {First: 111, Last: 120, Master: "a:1"}}
	n := nodes{ask: func(context.Context) ([]node.SlotRange, error) { return answer, err }}
	require.Empty(t, n.of(7), "nothing is known yet")
	n.learn(t.Context())
	err = io.EOF
	n.learn(t.Context()) // keeps what it knew
	answer, err = nil, nil
	n.learn(t.Context()) // a node that has left the cluster answered
	for slot, want := range map[int]string{
		0: "", 9: "", 10: "a:1", 99: "a:1", 100: "b:1", 101: "", 110: "", 111: "a:1", 120: "a:1", 121: "", 8999: "", 9000: "c:1", 16383: "c:1",
	} {
		require.Equal(t, want, n.of(slot), slot)
	}
}

// A client that only holds locks learns the nodes with its first renewal, and anew once a minute.
// That a wrapper hides the cluster client does not matter.
func TestRenewalsLearnTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, master := 0, "a:1"
		s := New(Config{Deployment: node.Deployment{ClusterSlots: func(context.Context) ([]node.SlotRange, error) {
			asked++
			return []node.SlotRange{{First: 0, Last: 16383, Master: master}}, nil
		}}})
		s.SetRenewer(Holds, func(_ context.Context, _ lua.Redis, batch []watchdog.Renewal) ([]watchdog.Result, error) {
			return make([]watchdog.Result, len(batch)), nil
		})
		renew := func() {
			_, err := s.renew(t.Context(), s.Group(Holds, "door"), []watchdog.Renewal{{Key: "door", ID: "a:1"}})
			require.NoError(t, err)
			synctest.Wait()
		}
		renew()
		require.Zero(t, asked, "it is no cluster")
		s.FoundCluster()
		renew()
		renew()
		require.Equal(t, 1, asked)
		require.Equal(t, "a:1", s.topology.nodes.of(7))
		master = "b:1"
		time.Sleep(reloadInterval)
		renew()
		require.Equal(t, 2, asked)
		require.Equal(t, "b:1", s.topology.nodes.of(7))
		s.BeginClose()
		require.NoError(t, s.FinishClose(t.Context()))
	})
}
