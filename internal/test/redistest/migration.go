package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Migration is a hash slot of a cluster that moves from one master to another. It goes on until Finish
// or Cancel. Meanwhile the first node has the keys that did not move yet, and the second one the others.
type Migration struct {
	cluster  *Cluster
	slot     int
	from, to *Server
}

// Migrate begins to move a slot. No key moves before Move or Finish.
func (c *Cluster) Migrate(t testing.TB, slot int, from, to *Server) *Migration {
	t.Helper()
	m := &Migration{cluster: c, slot: slot, from: from, to: to}
	m.setSlot(t, to, "IMPORTING", m.id(t, from))
	m.setSlot(t, from, "MIGRATING", m.id(t, to))
	return m
}

// Move moves keys of the slot. Keys that the first node does not have stay where they are.
func (m *Migration) Move(t testing.TB, keys ...string) {
	t.Helper()
	if len(keys) == 0 {
		return
	}
	args := []any{"MIGRATE", "127.0.0.1", m.to.port, "", 0, 10_000, "KEYS"}
	for _, k := range keys {
		args = append(args, k)
	}
	if err := m.from.control.Do(context.Background(), args...).Err(); err != nil {
		t.Fatalf("redistest: moving %q: %v", keys, err)
	}
}

// Finish moves the other keys, and gives the slot to the second node.
func (m *Migration) Finish(t testing.TB) {
	t.Helper()
	for {
		keys, err := m.from.control.ClusterGetKeysInSlot(context.Background(), m.slot, 100).Result()
		if err != nil {
			t.Fatalf("redistest: keys of slot %d: %v", m.slot, err)
		}
		if len(keys) == 0 {
			break
		}
		m.Move(t, keys...)
	}
	owner := m.id(t, m.to)
	for _, node := range []*Server{m.to, m.from} { // the order that Redis documents
		m.setSlot(t, node, "NODE", owner)
	}
	for _, node := range m.cluster.Nodes {
		m.awaitOwner(t, node, owner)
	}
}

// awaitOwner waits until a node knows the new owner of the slot.
func (m *Migration) awaitOwner(t testing.TB, node *Server, owner string) {
	t.Helper()
	for end := time.Now().Add(readyWithin); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		slots, err := node.control.ClusterSlots(context.Background()).Result()
		if err != nil {
			continue
		}
		for _, s := range slots {
			if s.Start <= m.slot && m.slot <= s.End && len(s.Nodes) > 0 && s.Nodes[0].ID == owner {
				return
			}
		}
	}
	t.Fatalf("redistest: a node does not learn that slot %d has moved", m.slot)
}

// Cancel ends the migration. The slot stays with the first node, and keys that moved are lost.
func (m *Migration) Cancel(t testing.TB) {
	t.Helper()
	for _, node := range []*Server{m.from, m.to} {
		m.setSlot(t, node, "STABLE")
	}
}

func (m *Migration) setSlot(t testing.TB, node *Server, args ...any) {
	t.Helper()
	cmd := append([]any{"CLUSTER", "SETSLOT", m.slot}, args...)
	if err := node.control.Do(context.Background(), cmd...).Err(); err != nil {
		t.Fatalf("redistest: %s: %v", strings.Trim(fmt.Sprint(cmd), "[]"), err)
	}
}

func (m *Migration) id(t testing.TB, node *Server) string {
	t.Helper()
	id, err := node.control.Do(context.Background(), "CLUSTER", "MYID").Text()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return id
}
