package redlatch_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// migration is a slot that moves from one node of a cluster to another.
type migration struct {
	t              *testing.T
	slot           int
	source, target *redistest.Server
}

func beginMigration(t *testing.T, c *redistest.Cluster, slot int) *migration {
	t.Helper()
	m := &migration{t, slot, c.Nodes[0], c.Nodes[1]}
	m.setSlot(m.target, "IMPORTING", nodeID(t, m.source))
	m.setSlot(m.source, "MIGRATING", nodeID(t, m.target))
	return m
}

func nodeID(t *testing.T, s *redistest.Server) string {
	t.Helper()
	id, err := s.Control().Do(t.Context(), "CLUSTER", "MYID").Text()
	require.NoError(t, err)
	return id
}

func (m *migration) setSlot(node *redistest.Server, words ...any) {
	m.t.Helper()
	require.NoError(m.t, node.Control().Do(m.t.Context(), append([]any{"CLUSTER", "SETSLOT", m.slot}, words...)...).Err())
}

// move moves a key, if it is there.
func (m *migration) move(k string) {
	m.t.Helper()
	host, port, _ := strings.Cut(m.target.Addr(), ":")
	require.NoError(m.t, m.source.Control().Do(m.t.Context(), "MIGRATE", host, port, k, 0, 10_000).Err())
}

// moveOne moves some key. It reports whether there was one.
func (m *migration) moveOne() bool {
	m.t.Helper()
	keys, err := m.source.Control().ClusterGetKeysInSlot(m.t.Context(), m.slot, 1).Result()
	require.NoError(m.t, err)
	if len(keys) > 0 {
		m.move(keys[0])
	}
	return len(keys) > 0
}

// end moves what is left, and gives the slot to the target.
func (m *migration) end() {
	m.t.Helper()
	for m.moveOne() {
	}
	m.setSlot(m.target, "NODE", nodeID(m.t, m.target))
	m.setSlot(m.source, "NODE", nodeID(m.t, m.target))
}

// namesOfOneSlot returns n names that share a slot of the first of two masters.
func namesOfOneSlot(t *testing.T, n int) (names []string, slot int) {
	t.Helper()
	bySlot := map[int][]string{}
	for i := 0; ; i++ {
		name := fmt.Sprint("door", i)
		slot := key.Slot(name)
		if slot >= 8192 {
			continue
		}
		bySlot[slot] = append(bySlot[slot], name)
		if len(bySlot[slot]) == n {
			return bySlot[slot], slot
		}
	}
}

// retries counts the commands that no node could run because of a migration.
type retries struct{ n atomic.Int64 }

func (r *retries) Observe(_ context.Context, e event.Event) {
	if e.Kind == event.Retried && e.Err != nil && strings.Contains(e.Err.Error(), "TRYAGAIN") {
		r.n.Add(1)
	}
}

// await waits until so many commands more were answered so.
func (r *retries) await(t *testing.T, more int64) {
	t.Helper()
	from := r.n.Load()
	require.Eventually(t, func() bool { return r.n.Load() >= from+more }, stage.Guard, time.Millisecond, "commands that are sent again")
}

// waitFor returns the result of a call that waits, nil if it fails.
func waitFor[T any](call func() (*T, error)) <-chan *T {
	got := make(chan *T, 1)
	go func() {
		v, err := call()
		if err != nil {
			v = nil
		}
		got <- v
	}()
	return got
}

// waitsForRedisson makes Redisson hold a lock, and returns when a client waits for it that would
// not poll and listens to the sharded channel on that node.
func waitsForRedisson(t *testing.T, c *redistest.Cluster, name string, node *redistest.Server) (waiter <-chan *lock.Hold) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stage.Guard)
	t.Cleanup(cancel)
	require.NoError(t, node.Control().HSet(ctx, name, "java:1", 1).Err())
	m := stage.LocksOn(t, c.Client(t), redlatch.WithPollInterval(time.Hour)).Mutex(name)
	waiter = waitFor(func() (*lock.Hold, error) { return m.Lock(ctx) })
	awaitShardListener(t, name, node)
	return waiter
}

func awaitShardListener(t *testing.T, name string, node *redistest.Server) {
	t.Helper()
	channel := key.ForMutex(name).Channel
	require.Eventually(t, func() bool {
		n, err := node.Control().PubSubShardNumSub(t.Context(), channel).Result()
		return err == nil && n[channel] == 1
	}, stage.Guard, time.Millisecond, "the client listens to the sharded channel")
}

var onlyMessages = []redlatch.Option{
	redlatch.WithLease(time.Hour), redlatch.WithPollInterval(20 * time.Minute), redlatch.WithHeartbeat(time.Hour),
}

// listens reports whether a server has a subscriber of a channel.
func listens(t *testing.T, s *redistest.Server, pattern string) bool {
	t.Helper()
	names, err := s.Control().PubSubChannels(t.Context(), pattern).Result()
	require.NoError(t, err)
	return len(names) > 0
}

// newWatched returns a pair whose replica three sentinels promote if the master fails. The master
// has another replica.
func newWatched(t *testing.T) (*stage.Pair, *redistest.Watched) {
	t.Helper()
	bed := redistest.StartWatched(t)
	p := &stage.Pair{T: t, Master: bed.Master, Replica: bed.Replicas[0], Replicas: len(bed.Replicas)}
	p.Lead(p.Master)
	return p, bed
}

// readAll returns the text of files of this repository.
func readAll(t *testing.T, names ...string) string {
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

const securityPage = "docs/security.md"

// documentedACL returns the rule of the page, as words for ACL SETUSER.
func documentedACL(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(securityPage)
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```\nACL SETUSER (.*?)```").FindSubmatch(page)
	require.NotNil(t, block, "%s shows no ACL SETUSER", securityPage)
	return strings.Fields(string(block[1]))
}

// furtherACL returns the rule of the page below those words.
func furtherACL(t *testing.T, words string) []string {
	t.Helper()
	page, err := os.ReadFile(securityPage)
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)" + words + "\n\n```\nACL SETUSER locks(.*?)```").FindSubmatch(page)
	require.NotNil(t, block, "%s shows no rule under %q", securityPage, words)
	return strings.Fields(string(block[1]))
}

// deniedText matches the errors of Redis and Valkey for a denied command, alone and inside a
// script.
var deniedText = regexp.MustCompile(`NOPERM|The user executing the script can't run|ACL failure in script`)
