package interop_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/reentrant"
)

var update = flag.Bool("update", false, "write what Redisson sends into dialogue/ instead of comparing it")

// recordedName is the lock of all dialogues.
const recordedName = "orders:42"

// step is one step of a Java program, by threads a and b of one client.
type step struct {
	title string
	play  func(t *testing.T, on *redistest.Server, a, b *thread)
}

// calls is a step with plain calls by a.
func calls(title, verb string, args ...string) step {
	return step{title, func(_ *testing.T, _ *redistest.Server, a, _ *thread) { a.must(verb, args...) }}
}

const n = recordedName

// dialogues has the recorded steps of each primitive.
var dialogues = map[string][]step{
	"lock": {
		calls("lock", "lock", "lock", n, "-1"),
		calls("lock again", "lock", "lock", n, "-1"),
		{"tryLock of another", func(_ *testing.T, _ *redistest.Server, _, b *thread) { b.must("try", "lock", n) }},
		calls("inner unlock", "unlock", "lock", n),
		calls("unlock", "unlock", "lock", n),
		calls("lock with a lease", "lock", "lock", n, "5000"),
		calls("forceUnlock", "force", "lock", n),
		{"lock, wait, unlock", waitAndUnlock("lock")},
	},
	"fenced": {
		calls("lock", "fenced.lock", n),
		calls("lock again", "fenced.lock", n),
		calls("inner unlock", "unlock", "fenced", n),
		calls("unlock", "unlock", "fenced", n),
		calls("token", "fenced.token", n),
	},
	"fair": {
		calls("lock", "lock", "fair", n, "-1"),
		calls("unlock", "unlock", "fair", n),
		{"lock, wait, unlock", waitAndUnlock("fair")},
	},
	"spin":         {calls("lock", "lock", "spin", n, "-1"), calls("unlock", "unlock", "spin", n)},
	"nonreentrant": {calls("lock", "lock", "nonreentrant", n, "-1"), calls("unlock", "unlock", "nonreentrant", n)},
	"readwrite": {
		calls("read", "lock", "read", n, "-1"),
		calls("read again", "lock", "read", n, "-1"),
		calls("inner unlock of read", "unlock", "read", n),
		calls("unlock of read", "unlock", "read", n),
		calls("write", "lock", "write", n, "-1"),
		calls("unlock of write", "unlock", "write", n),
	},
	"semaphore": {
		calls("trySetPermits", "semaphore.set", n, "2"),
		calls("tryAcquire", "semaphore.try", n, "2"),
		calls("release", "semaphore.release", n, "2"),
	},
	"permits": {
		calls("trySetPermits", "permits.set", n, "2"),
		calls("tryAcquire", "permits.try", n),
	},
	"latch": {
		calls("trySetCount", "latch.set", n, "2"),
		calls("countDown", "latch.down", n),
		calls("countDown to zero", "latch.down", n),
	},
}

// waitAndUnlock lets b wait for a lock that a holds, and get it.
func waitAndUnlock(kind string) func(*testing.T, *redistest.Server, *thread, *thread) {
	return func(t *testing.T, on *redistest.Server, a, b *thread) {
		a.must("lock", kind, n, "-1")
		before := scripts(t, on)
		got := b.begin("lock", kind, n, "-1")
		listening := func() int { return len(on.Control().PubSubChannels(t.Context(), channelOf(n)+"*").Val()) }
		asleep(t, before, func() bool { return listening() == 1 }, on)
		a.must("unlock", kind, n)
		require.Empty(t, b.await(got, "gets the lock").err)
		b.must("unlock", kind, n)
		require.Eventually(t, func() bool { return listening() == 0 }, guard, time.Millisecond)
	}
}

// The commands that Redisson sends for each primitive, and the keys that it leaves behind, are the
// recorded ones. This test fails if a new version of Redisson sends others.
func TestRedissonSpeaksAsRecorded(t *testing.T) {
	t.Parallel()
	r := java(t)
	for primitive, steps := range dialogues {
		t.Run(primitive, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			now := record(t, r, server, steps)
			file := filepath.Join("dialogue", primitive+".txt")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(written(t, server, steps, now)), 0o644))
			}
			then := recorded(t, file)
			require.Len(t, then, len(now))
			for _, s := range steps {
				require.ElementsMatch(t, then[s.title], now[s.title], "%s; written anew by make dialogue", s.title)
			}
		})
	}
}

// dialogue has the commands and the keys of each step, by the title of the step. A command is a
// block of lines. A key is a line that begins with =.
type dialogue map[string][]string

// record runs the steps twice and keeps the second run, because the first run loads the scripts.
func record(t *testing.T, r *jvm, server *redistest.Server, steps []step) dialogue {
	t.Helper()
	rdb := server.Client(t)
	service := r.open(t, server.Addr())
	a, b := service.thread("a"), service.thread("b")
	var d dialogue
	for range 2 {
		require.NoError(t, rdb.FlushDB(t.Context()).Err())
		d = dialogue{}
		m, seen := newMonitor(t, server), anonymous{}
		for _, s := range steps {
			s.play(t, server, a, b)
			require.Eventually(t, func() bool { return len(rdb.Keys(t.Context(), "redisson_unlock_latch:*").Val()) == 0 }, guard, time.Millisecond)
			for _, block := range m.cut(recordedName) {
				d[s.title] = append(d[s.title], seen.text(block))
			}
			d[s.title] = append(d[s.title], seen.keyspace(t, rdb)...)
		}
	}
	return d
}

// written returns a dialogue as the text of a file.
func written(t *testing.T, server *redistest.Server, steps []step, d dialogue) string {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "Redisson %s on %s %s, single server: commands, indented what their scripts did, and after =\nwhat stood there then. Written by make dialogue.\n",
		redissonOfTheProject(t), server.Kind(), server.Version())
	for _, s := range steps {
		fmt.Fprintf(&text, "\n## %s\n%s\n", s.title, strings.Join(d[s.title], "\n"))
	}
	return text.String()
}

// recorded reads a file with text from written.
func recorded(t *testing.T, file string) dialogue {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	d := dialogue{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		d[title] = nil
		for _, line := range strings.Split(strings.TrimRight(body, "\n"), "\n") {
			if strings.HasPrefix(line, "    ") {
				d[title][len(d[title])-1] += "\n" + line
			} else if line != "" {
				d[title] = append(d[title], line)
			}
		}
	}
	require.NotEmpty(t, d, file)
	return d
}

// left returns the keys that were there after a step.
func (d dialogue) left(title string) (keys []string) {
	for _, block := range d[title] {
		if strings.HasPrefix(block, "=") {
			keys = append(keys, block)
		}
	}
	return keys
}

// The scripts of this library leave the same keys behind as Redisson's, with the same types, fields
// and expiry. This test needs no Java, because it compares with the recorded dialogue.
func TestGoLeavesWhatRedissonLeaves(t *testing.T) {
	t.Parallel()
	fenced, plain := recorded(t, filepath.Join("dialogue", "fenced.txt")), recorded(t, filepath.Join("dialogue", "lock.txt"))
	token := "= " + tokenOf(recordedName) + " string {number} for ever"
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		rdb := redistest.Start(t).Client(t)
		if !b.IsReal() {
			rdb = redis.NewClient(&redis.Options{Addr: redistest.Embedded(t).Addr()})
			t.Cleanup(func() { _ = rdb.Close() })
		}
		locks := locksOn(t, rdb, redlatch.WithDescription(""), redlatch.WithFenceRetention(0))
		goSteps(t, locks.Mutex(recordedName), func(title string, seen anonymous) {
			t.Helper()
			now := seen.keyspace(t, rdb)
			if _, known := fenced[title]; known {
				require.Equal(t, fenced.left(title), now, "as RFencedLock after %q", title)
			}
			require.Equal(t, append(plain.left(title), token), now, "as RLock after %q, with a token besides", title)
		})

		described := locksOn(t, rdb, redlatch.WithDescription("me"), redlatch.WithFenceRetention(0))
		h := mustLock(t, t.Context(), described.Mutex(recordedName))
		require.Equal(t, []string{"= " + recordedName + " hash {A1=1 redlatch:about=me} for the lease", token}, anonymous{}.keyspace(t, rdb))
		unlock(t, h)
	})
}

// goSteps does in Go the same as the dialogue of lock in Java.
func goSteps(t *testing.T, m *reentrant.Mutex, after func(title string, seen anonymous)) {
	t.Helper()
	seen := anonymous{}
	chain := redlatch.WithOwner(context.Background())
	outer := mustLock(t, chain, m)
	after("lock", seen)
	inner := mustLock(t, chain, m)
	after("lock again", seen)
	refused(t, m)
	after("tryLock of another", seen)
	unlock(t, inner)
	after("inner unlock", seen)
	unlock(t, outer)
	after("unlock", seen)
	_ = mustLock(t, chain, m)
	_, err := m.ForceRelease(t.Context(), "")
	require.NoError(t, err)
	after("forceUnlock", seen)
}
