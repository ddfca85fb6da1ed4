package key

import (
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lockerr"
)

func TestNamesFollowRedissonsRule(t *testing.T) {
	require.Equal(t, Mutex{
		Lock:    "orders:42",
		Fence:   "redisson_lock_token:{orders:42}",
		Channel: "redisson_lock__channel:{orders:42}",
		Queue:   "redlatch:queue:{orders:42}",
		Alive:   "redlatch:alive:{orders:42}",
		Args: MutexArgs{
			Lock:    "orders:42",
			Fence:   "redisson_lock_token:{orders:42}",
			Channel: "redisson_lock__channel:{orders:42}",
			Queue:   "redlatch:queue:{orders:42}",
			Alive:   "redlatch:alive:{orders:42}",
		},
	}, ForMutex("orders:42"))
	require.Equal(t, Semaphore{
		Name:    "orders:42",
		Permits: "redlatch:permits:{orders:42}",
		Holders: "redlatch:holders:{orders:42}",
		Queue:   "redlatch:permits-queue:{orders:42}",
		Alive:   "redlatch:permits-alive:{orders:42}",
		Args: SemaphoreArgs{
			Permits: "redlatch:permits:{orders:42}",
			Holders: "redlatch:holders:{orders:42}",
			Queue:   "redlatch:permits-queue:{orders:42}",
			Alive:   "redlatch:permits-alive:{orders:42}",
		},
	}, ForSemaphore("orders:42"))
	tagged := ForMutex("orders:{42}:x")
	require.Equal(t, "redisson_lock_token:orders:{42}:x", tagged.Fence)
	require.Equal(t, "redisson_lock__channel:orders:{42}:x", tagged.Channel)
}

// A name gets its own keys, also if it takes the place of another in the cache.
func TestACacheMixesNoNames(t *testing.T) {
	builds := 0
	c := NewCache(func(name string) Mutex { builds++; return ForMutex(name) })
	for round := range 3 {
		for i := range 4 * len(c.slots) {
			name := strconv.Itoa(i)
			k, err := c.Get(name)
			require.NoError(t, err)
			require.Equal(t, ForMutex(name), *k)
			again, err := c.Get(name)
			require.NoError(t, err)
			require.Same(t, k, again, "nothing is built twice in a row")
		}
		require.LessOrEqual(t, builds, 4*len(c.slots)*(round+1))
	}
	for range 2 {
		before := builds
		k, err := c.Get("a\nb")
		require.ErrorIs(t, err, lockerr.ErrConfig)
		require.Equal(t, "a\nb", k.Lock)
		require.Equal(t, before+1, builds, "what is refused is not kept")
	}

	text := strings.Repeat("x", 1<<10)
	k, err := c.Get(text[:5])
	require.NoError(t, err)
	require.NotSame(t, unsafe.StringData(text), unsafe.StringData(k.Lock), "the text around a name is not kept")
}

// With one slot for each name, about one in five of these would be built again in each round.
func TestACacheKeepsSomeDozensOfNames(t *testing.T) {
	builds := 0
	c := NewCache(func(name string) Mutex { builds++; return ForMutex(name) })
	const names, rounds = 128, 64
	before := 0
	for range rounds {
		before = builds
		for i := range names {
			_, err := c.Get(strconv.Itoa(i))
			require.NoError(t, err)
		}
	}
	require.LessOrEqual(t, builds-before, names/16)
}

// Redis 7.0.15 answered CLUSTER KEYSLOT with these values.
func TestSlotAgreesWithTheServer(t *testing.T) {
	require.Equal(t, 12739, Slot("123456789"))
	require.Equal(t, 12182, Slot("foo"))
	require.Equal(t, Slot("42"), Slot("orders:{42}:x"))
	require.Equal(t, Slot("orders:42"), Slot("redisson_lock_token:{orders:42}"))
}

func TestBadNamesAreRefusedAndNamed(t *testing.T) {
	for _, name := range []string{
		"", strings.Repeat("x", MaxNameLen+1), "a\x00b", "a\nb", "a\xffb",
		"{}x", "a{b", "a}b", "}a{", "{a}{b}", "{{a}}", "{a}}", "redisson_lock_token:{a}",
		"redlatch:queue:{a}", "redlatch:alive:{a}", "redlatch:permits:{a}", "redlatch:holders:{a}",
		"redlatch:permits-queue:{a}", "redlatch:permits-alive:{a}", "redlatch:queue::a{b}", "a\u202eb", "a\u200b",
	} {
		err := CheckName(name)
		require.ErrorIs(t, err, lockerr.ErrConfig, "%q", name)
		var bad *lockerr.ConfigError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, name, bad.Value)
		require.Less(t, len(err.Error()), 500)
	}
}

func TestGoodNamesShareOneSlot(t *testing.T) {
	for _, name := range []string{
		"a", "orders:42", "with space", "täg", "🔒", "{a}", "x{a}y", strings.Repeat("x", MaxNameLen),
	} {
		require.NoError(t, CheckName(name), "%q", name)
		k := ForMutex(name)
		slot := Slot(name)
		require.Equal(t, slot, Slot(k.Lock))
		require.Equal(t, slot, Slot(k.Fence))
		require.Equal(t, slot, Slot(k.Channel))
		require.Equal(t, slot, Slot(k.Queue))
		require.Equal(t, slot, Slot(k.Alive))
		sem := ForSemaphore(name)
		for _, own := range []string{sem.Permits, sem.Holders, sem.Queue, sem.Alive} {
			require.Equal(t, slot, Slot(own))
			require.Error(t, CheckName(own), "no lock has the key of a semaphore")
			require.NotContains(t, []string{k.Lock, k.Fence, k.Queue, k.Alive}, own)
		}
	}
}

func TestIsAcquisition(t *testing.T) {
	const id = "0b9ea7c2-5c61-4a46-9d0c-6e0a0bd7e7f1"
	for field, is := range map[string]bool{
		id + ":1": true, id + ":-1": true, id + ":9223372036854775807": true,
		id: false, id + ":": false, id + ":0x1": false, id + ":1_0": false, id + ":9223372036854775808": false,
		":1": false, "redlatch:about": false, id[1:] + ":1": false, "{" + id + "}:1": false,
	} {
		require.Equal(t, is, IsAcquisition(field), field)
	}
}
