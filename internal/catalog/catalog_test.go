package catalog

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lockerr"
)

func newClient(t *testing.T, rdb redis.UniversalClient, options ...redlatch.Option) *redlatch.Client {
	t.Helper()
	locks, err := redlatch.New(rdb, append([]redlatch.Option{redlatch.WithDescription("holder")}, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locks.Close(context.Background())) })
	return locks
}

func newCatalog(t *testing.T, rdb redis.UniversalClient, options ...redlatch.Option) (*Catalog, *redlatch.Client) {
	t.Helper()
	locks := newClient(t, rdb, options...)
	return New(rdb, locks), locks
}

// list returns what the query finds, by name.
func list(t *testing.T, c *Catalog, q Query) map[string]Kinds {
	t.Helper()
	listing, err := c.List(t.Context(), q)
	require.NoError(t, err)
	require.False(t, listing.Truncated)
	found := map[string]Kinds{}
	for i, e := range listing.Entries {
		require.NotContains(t, found, e.Name)
		require.True(t, i == 0 || listing.Entries[i-1].Name < e.Name, "sorted")
		found[e.Name] = e.Kinds
	}
	return found
}

// acquire locks the mutex until the test ends.
func acquire(t *testing.T, mu redlatch.Locker) *redlatch.Hold {
	t.Helper()
	hold, err := mu.Lock(t.Context())
	require.NoError(t, err, mu.Name())
	t.Cleanup(func() { runtime.KeepAlive(hold) }) // as garbage, it would be logged
	return hold
}

// wait waits for the lock in the background, until the test ends.
func wait(t *testing.T, locks *redlatch.Client, name string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	placed, done := make(chan struct{}, 10), make(chan struct{})
	mu := locks.FairMutex(name, redlatch.WithWaitCallback(func(redlatch.Waiting) { placed <- struct{}{} }))
	go func() {
		defer close(done)
		_, _ = mu.Lock(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	select {
	case <-placed:
	case <-time.After(time.Minute):
		t.Fatal("no place in the queue")
	}
}

// names are allowed, and would break a pattern or a parser.
var names = []string{
	"orders:42", "x", "{x}", "a{b}c", "{b}", "*", "?", "[a-z]", "[a", `back\slash`, `\*`, "^", "with space", "täg🔒", "-dash", `"quoted"`, "queue:{t}", ":colon", "redlatch", strings.Repeat("long", 100),
}

func TestListFindsEachNameWithItsKinds(t *testing.T) {
	topologies := map[string]func(t *testing.T) redis.UniversalClient{
		"one server": func(t *testing.T) redis.UniversalClient { return redistest.Start(t).Client(t) },
		"a cluster":  func(t *testing.T) redis.UniversalClient { return redistest.StartCluster(t, 3, 0).Client(t) },
	}
	for topology, connect := range topologies {
		prefixes := []string{"", "svc:", "{svc}:", "a[b]*:"}
		if topology == "a cluster" {
			prefixes = prefixes[:2] // each has a cluster of its own
		}
		for _, prefix := range prefixes {
			t.Run(topology+" prefix "+prefix, func(t *testing.T) {
				t.Parallel()
				rdb := connect(t)
				c, locks := newCatalog(t, rdb, redlatch.WithPrefix(prefix))
				other := newClient(t, rdb, redlatch.WithPrefix("other:"))
				require.NoError(t, rdb.Set(t.Context(), "redlatch:other", "x", 0).Err())
				if prefix != "" {
					acquire(t, other.Mutex("hidden"))
				}
				wanted := map[string]Kinds{}
				for i, name := range names {
					if strings.Contains(prefix, "{") {
						name = strings.NewReplacer("{", "(", "}", ")").Replace(name)
					}
					if key.CheckName(prefix+name) != nil {
						continue
					}
					kinds := Kinds(1 + 2*(i%2) + 4*(i%3/2))
					hold := acquire(t, locks.Mutex(name))
					if kinds.Has(FairQueue) {
						wait(t, locks, name)
					} else if !strings.HasPrefix(name, "{") {
						require.NoError(t, hold.Unlock(t.Context())) // an idle name is found too
					}
					if kinds.Has(Semaphore) {
						permit, err := locks.Semaphore(name, 3).Acquire(t.Context(), 2)
						require.NoError(t, err)
						t.Cleanup(func() { runtime.KeepAlive(permit) })
					}
					wanted[name] |= kinds
				}
				if prefix == "" {
					wanted["b"] = Mutex // the fence of {b} is that of b
				}
				require.Greater(t, len(wanted), 15)
				require.Equal(t, wanted, list(t, c, Query{}))
				for name, kinds := range list(t, c, Query{Hashes: true}) {
					require.Equal(t, wanted[name], kinds, name)
				}
			})
		}
	}
}

func TestAnIdleNameInBracesIsListedWithoutThem(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	c, locks := newCatalog(t, rdb)
	hold := acquire(t, locks.Mutex("{x}"))
	require.Equal(t, map[string]Kinds{"x": Mutex, "{x}": Mutex}, list(t, c, Query{}))
	require.NoError(t, hold.Unlock(t.Context()))
	require.Equal(t, map[string]Kinds{"x": Mutex}, list(t, c, Query{}))
}

func TestThousandsOfNamesAreFound(t *testing.T) {
	const n = 5000
	rdb := redistest.Start(t).Client(t)
	c, _ := newCatalog(t, rdb)
	_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range n {
			p.Set(t.Context(), key.ForMutex(fmt.Sprint("job:", i)).Fence, 1, 0)
			p.Set(t.Context(), fmt.Sprint("other:", i), 1, 0)
		}
		return nil
	})
	require.NoError(t, err)
	require.Len(t, list(t, c, Query{}), n)
	require.Len(t, list(t, c, Query{Pattern: "job:*9"}), n/10)

	listing, err := c.List(t.Context(), Query{Limit: 10})
	require.NoError(t, err)
	require.True(t, listing.Truncated)
	require.Len(t, listing.Entries, 10)

	states := c.States(t.Context(), listing.Entries, 1)
	require.Len(t, states, 10)
	for i, s := range states {
		require.Equal(t, listing.Entries[i], s.Entry)
		require.NoError(t, s.Err)
		require.True(t, s.IsIdle())
	}
	all, err := c.List(t.Context(), Query{})
	require.NoError(t, err)
	require.Len(t, c.States(t.Context(), all.Entries, 0), n)
}

// A lock that somebody holds must not drown among names that were used lately.
func TestIdleNamesHideNoHeldOne(t *testing.T) {
	for topology, connect := range map[string]func(t *testing.T) redis.UniversalClient{
		"one server": func(t *testing.T) redis.UniversalClient { return redistest.Start(t).Client(t) },
		"a cluster":  func(t *testing.T) redis.UniversalClient { return redistest.StartCluster(t, 3, 0).Client(t) },
	} {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			const idle, limit = 3000, 5
			rdb := connect(t)
			c, locks := newCatalog(t, rdb)
			_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
				for i := range idle {
					p.Set(t.Context(), key.ForMutex(fmt.Sprint("idle:", i)).Fence, 1, 0)
					p.ZAdd(t.Context(), key.ForSemaphore(fmt.Sprint("unused:", i)).Permits, redis.Z{Score: 7, Member: "limit"}, redis.Z{Score: 7, Member: "declared"})
				}
				return nil
			})
			require.NoError(t, err)
			acquire(t, locks.Mutex("held"))
			acquire(t, locks.FairMutex("queue"))
			wait(t, locks, "queue")
			acquire(t, locks.Mutex("{braced}"))
			for _, units := range []int{1, 4} {
				permit, err := locks.Semaphore(fmt.Sprint("permits:", units), 7).Acquire(t.Context(), units)
				require.NoError(t, err)
				t.Cleanup(func() { runtime.KeepAlive(permit) })
			}
			busy := map[string]Kinds{"held": Mutex, "queue": Mutex | FairQueue, "{braced}": Mutex, "permits:1": Semaphore, "permits:4": Semaphore}
			require.Len(t, busy, limit)
			require.Equal(t, busy, list(t, c, Query{Busy: true, Limit: limit}))
			require.Equal(t, map[string]Kinds{"held": Mutex}, list(t, c, Query{Busy: true, Pattern: "h*"}))

			found := func(q Query) (all map[string]Kinds, listing Listing) {
				listing, err := c.List(t.Context(), q)
				require.NoError(t, err)
				all = map[string]Kinds{}
				for _, e := range listing.Entries {
					all[e.Name] = e.Kinds
				}
				return all, listing
			}
			all, listing := found(Query{Limit: limit + 1})
			require.Len(t, all, limit+1)
			for name, kinds := range busy {
				require.Equal(t, kinds, all[name], name)
			}
			require.True(t, listing.Truncated)
			require.False(t, listing.BusyTruncated)
			all, listing = found(Query{Limit: limit}) // there is no room for others
			require.Equal(t, busy, all)
			require.True(t, listing.Truncated)
			for _, onlyBusy := range []bool{false, true} {
				all, listing = found(Query{Busy: onlyBusy, Limit: limit - 1})
				require.Len(t, all, limit-1)
				require.Subset(t, slices.Collect(maps.Keys(busy)), slices.Collect(maps.Keys(all)), "a search that ends early may not know all kinds of a name")
				require.True(t, listing.Truncated)
				require.True(t, listing.BusyTruncated)
			}
		})
	}
}

// A user who may list names may lack the commands that tell which of them are held.
func TestNamesStayIfRedisDoesNotSayWhetherTheyAreHeld(t *testing.T) {
	server := redistest.Start(t)
	_, locks := newCatalog(t, server.Client(t))
	acquire(t, locks.Mutex("x"))
	require.NoError(t, server.Control().ACLSetUser(t.Context(), "reader", "on", ">pw", "~*", "+@all", "-exists").Err())
	reader, _ := newCatalog(t, server.Client(t, func(o *redis.Options) { o.Username, o.Password = "reader", "pw" }))
	require.Equal(t, map[string]Kinds{"x": Mutex}, list(t, reader, Query{Busy: true}))
}

func TestListSendsNoKEYS(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	c, locks := newCatalog(t, rdb)
	acquire(t, locks.Mutex("x"))
	list(t, c, Query{Hashes: true})
	stats, err := server.Control().Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	require.Contains(t, stats, "cmdstat_scan:")
	require.NotContains(t, stats, "cmdstat_keys:")
}

func TestAPatternMatchesAsInRedis(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune(`abc*[]^-\?`)), 1, 8, -1).Draw(t, "text")
		pattern := rapid.StringOfN(rapid.SampledFrom([]rune(`aabbc**?[]^-\`)), 0, 8, -1).Draw(t, "pattern")
		if checkGlob(pattern) != nil {
			return
		}
		ctx := context.Background()
		require.NoError(t, rdb.Set(ctx, "globs:"+text, 1, 0).Err())
		keys, err := rdb.Keys(ctx, "globs:"+pattern).Result()
		require.NoError(t, err)
		require.Equal(t, slices.Contains(keys, "globs:"+text), matchGlob(pattern, text), "%q on %q", pattern, text)
		require.NoError(t, rdb.Del(ctx, "globs:"+text).Err())
		require.True(t, matchGlob(key.EscapeGlob(text), text))
	})
}

func TestAnIncompletePatternIsRefused(t *testing.T) {
	c, _ := newCatalog(t, redistest.Shared(t).Client(t))
	for _, pattern := range []string{"[", "a[b", `a\`, "[^", `[\]`, "[a-]"} {
		_, err := c.List(t.Context(), Query{Pattern: pattern})
		require.ErrorIs(t, err, lockerr.ErrConfig, pattern)
	}
}

func TestAPatternSelectsNames(t *testing.T) {
	c, locks := newCatalog(t, redistest.Start(t).Client(t), redlatch.WithPrefix("svc:"))
	for _, name := range []string{"a", "ab", "b{a}", "{a}b", "a*"} {
		acquire(t, locks.Mutex(name))
	}
	for pattern, wanted := range map[string][]string{
		"": {"a", "a*", "ab", "b{a}", "{a}b"}, "*": {"a", "a*", "ab", "b{a}", "{a}b"}, "a": {"a"}, "a*": {"a", "a*", "ab"},
		`a\*`: {"a*"}, "?b": {"ab"}, "*b": {"ab", "{a}b"}, "[b{]*": {"b{a}", "{a}b"}, "svc:*": {},
	} {
		for _, hashes := range []bool{false, true} {
			names := []string{}
			listing, err := c.List(t.Context(), Query{Pattern: pattern, Hashes: hashes})
			require.NoError(t, err)
			for _, e := range listing.Entries {
				names = append(names, e.Name)
			}
			require.Equal(t, wanted, names, "pattern %q", pattern)
		}
	}
}

// Redisson makes locks with any name, and without a fence.
func TestHashesFindsLocksWithoutAFence(t *testing.T) {
	for _, prefix := range []string{"", "a[b]*:"} {
		testHashes(t, prefix)
	}
}

func testHashes(t *testing.T, prefix string) {
	rdb := redistest.Start(t).Client(t)
	c, _ := newCatalog(t, rdb, redlatch.WithPrefix(prefix))
	ctx := t.Context()
	const java = "5f0c6f0e-6b8e-4d0a-9a38-0a3d1b8f3a11:7"
	require.NoError(t, rdb.HSet(ctx, prefix+"java", java, 1).Err())
	require.NoError(t, rdb.HSet(ctx, prefix+"user:1", "name", "x").Err())
	require.NoError(t, rdb.Set(ctx, prefix+"text", "x", 0).Err())
	for i := range 100 { // a large hash is not read, whatever it has
		require.NoError(t, rdb.HSet(ctx, prefix+"large", java, 1, fmt.Sprint(i), i).Err())
	}
	require.Empty(t, list(t, c, Query{}))
	require.Equal(t, map[string]Kinds{"java": Mutex}, list(t, c, Query{Hashes: true}))
	require.Equal(t, map[string]Kinds{"java": Mutex}, list(t, c, Query{Hashes: true, Pattern: "j?va"}))
	require.Empty(t, list(t, c, Query{Hashes: true, Pattern: "jav"}))
	state := c.State(ctx, "java", 0)
	require.NoError(t, state.Err)
	require.Equal(t, java, state.Lock.Holder)
}

func TestANameThatRedlatchRefusesIsListedWithAnError(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	c, _ := newCatalog(t, rdb)
	for _, name := range []string{"a\nb", "a{", "\x1b[31mred", "\xff", "}{", "\u202egnp"} {
		require.NoError(t, rdb.Set(t.Context(), key.ForMutex(name).Fence, 1, 0).Err())
		require.Contains(t, list(t, c, Query{}), name)
		s := c.States(t.Context(), []Entry{{name, Mutex}}, 1)[0]
		require.ErrorIs(t, s.Err, lockerr.ErrConfig)
		require.False(t, s.IsIdle(), "nobody knows")
	}
}

func TestStateSaysWhoHoldsAndWaits(t *testing.T) {
	for topology, connect := range map[string]func(t *testing.T) redis.UniversalClient{
		"one server": func(t *testing.T) redis.UniversalClient { return redistest.Start(t).Client(t) },
		"a cluster":  func(t *testing.T) redis.UniversalClient { return withReplicas(t, 3).Client(t) },
	} {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			rdb := connect(t)
			c, locks := newCatalog(t, rdb, redlatch.WithPrefix("svc:"))
			hold := acquire(t, locks.FairMutex("x"))
			const clients = 5 // in a cluster, they listen on different nodes
			for range clients {
				waiting := newClient(t, rdb, redlatch.WithPrefix("svc:"))
				wait(t, waiting, "x")
				wait(t, waiting, "x")
			}
			permit, err := locks.Semaphore("x", 3).Acquire(t.Context(), 2)
			require.NoError(t, err)

			var s State
			for end := time.Now().Add(time.Minute); s.Subscribers < clients && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				s = c.State(t.Context(), "x", 1)
				require.NoError(t, s.Err)
			}
			require.Equal(t, clients, s.Subscribers, "the clients that wait, not their waiters")
			require.Equal(t, Entry{"x", Mutex | FairQueue | Semaphore}, s.Entry)
			require.Equal(t, hold.ID(), s.Lock.Holder)
			require.Equal(t, "svc:x", s.Lock.Name)
			require.Equal(t, 2*clients, s.Waiting)
			require.Len(t, s.Waiters, 1)
			require.Equal(t, "holder", s.Waiters[0].Description)
			require.Equal(t, 3, s.Permits.Limit)
			require.Equal(t, permit.ID(), s.Permits.Holders[0].ID)
			require.False(t, s.IsIdle())
			require.Equal(t, "mutex, fair queue, semaphore", s.Kinds.String())

			nobody := c.State(t.Context(), "unused", 1)
			require.NoError(t, nobody.Err)
			require.Zero(t, nobody.Kinds)
			require.Zero(t, nobody.Subscribers)
			require.True(t, nobody.IsIdle())
		})
	}
}

func TestAUserWithoutPubSubReadsTheRest(t *testing.T) {
	server := redistest.Start(t)
	_, locks := newCatalog(t, server.Client(t))
	acquire(t, locks.Mutex("x"))
	require.NoError(t, server.Control().ACLSetUser(t.Context(), "reader", "on", ">pw", "~*", "+@all", "-pubsub").Err())
	reader, _ := newCatalog(t, server.Client(t, func(o *redis.Options) { o.Username, o.Password = "reader", "pw" }))
	s := reader.State(t.Context(), "x", 1)
	require.NoError(t, s.Err)
	require.True(t, s.Lock.Held())
	require.Equal(t, -1, s.Subscribers)
}

func TestListEndsWithItsContextAndSaysWhatRedisSaid(t *testing.T) {
	server := redistest.Start(t)
	c, _ := newCatalog(t, server.Client(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.List(ctx, Query{})
	require.ErrorIs(t, err, context.Canceled)

	require.NoError(t, server.Control().ACLSetUser(t.Context(), "blind", "on", ">pw", "~*", "+@all", "-scan").Err())
	blind, _ := newCatalog(t, server.Client(t, func(o *redis.Options) { o.Username, o.Password = "blind", "pw" }))
	_, err = blind.List(t.Context(), Query{})
	require.ErrorContains(t, err, "NOPERM")
}

// withReplicas starts a cluster whose masters have a replica each. The nodes tell each other of the
// replicas once in half a node timeout, so the timeout is short. A node that answers late, because
// the machine is busy, is neither replaced, nor a reason for the others to refuse commands.
func withReplicas(t *testing.T, masters int) *redistest.Cluster {
	return redistest.StartCluster(t, masters, 1, "--cluster-node-timeout", "2000",
		"--cluster-replica-no-failover", "yes", "--cluster-require-full-coverage", "no")
}

func TestSubscribersOfAllNodesCount(t *testing.T) {
	t.Parallel()
	cluster := withReplicas(t, 2)
	rdb := cluster.Client(t)
	c, _ := newCatalog(t, rdb)
	for _, node := range cluster.Nodes {
		listener := node.Client(t).Subscribe(t.Context(), key.ForMutex("x").Channel)
		_, err := listener.Receive(t.Context()) // the server has confirmed it
		require.NoError(t, err)
		t.Cleanup(func() { _ = listener.Close() })
	}
	subscribers := 0
	for end := time.Now().Add(time.Minute); subscribers < len(cluster.Nodes) && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		rdb.ReloadState(t.Context()) // until the node that go-redis asks knows the replicas
		subscribers = c.State(t.Context(), "x", 0).Subscribers
	}
	require.Equal(t, len(cluster.Nodes), subscribers)
}
