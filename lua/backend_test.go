package lua_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lua"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// backend is one server of its own with one client.
type backend struct {
	rdb  *redis.Client
	addr string
	mini *miniredis.Miniredis // nil on a real server
}

// each runs the test on the embedded server and on a real one, in RESP2 and
// RESP3. Every run has a server of its own.
func each(t *testing.T, test func(t *testing.T, b *backend)) {
	t.Helper()
	t.Parallel()
	for _, protocol := range redistest.EmbeddedProtocols() {
		t.Run(fmt.Sprintf("miniredis/resp%d", protocol), func(t *testing.T) {
			t.Parallel()
			m := miniredis.RunT(t)
			test(t, &backend{rdb: dial(t, m.Addr(), protocol, nil), addr: m.Addr(), mini: m})
		})
	}
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("server/resp%d", protocol), func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			test(t, &backend{rdb: dial(t, s.addr, protocol, nil), addr: s.addr})
		})
	}
}

func dial(t testing.TB, addr string, protocol int, change func(*redis.Options)) *redis.Client {
	t.Helper()
	opt := &redis.Options{Addr: addr, Protocol: protocol}
	if change != nil {
		change(opt)
	}
	rdb := redis.NewClient(opt)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// server is a real server of the test's own.
type server struct {
	*redistest.Server
	addr    string
	version int // 602 is Redis 6.2, 901 is Valkey 9.1
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	s := &server{Server: redistest.Start(t, args...)}
	s.addr = s.Addr()
	var major, minor int
	_, err := fmt.Sscanf(s.Version(), "%d.%d", &major, &minor)
	require.NoError(t, err)
	s.version = major*100 + minor
	return s
}

// cutter is a dialer whose connections can break in the middle of a script.
type cutter struct {
	mu      sync.Mutex
	mode    cutMode
	Scripts atomic.Int64 // evalsha and eval commands written
	Cuts    atomic.Int64 // how often the fault took effect
}

type cutMode int

const (
	cutNothing cutMode = iota
	cutReply           // the script runs, the connection ends in place of the reply
	cutSilence         // the script runs, and the reading of the reply times out
)

func (c *cutter) Set(m cutMode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mode = m
}

func (c *cutter) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, c: c}, nil
}

type cutConn struct {
	net.Conn
	c     *cutter
	armed atomic.Int32
	cut   atomic.Bool
}

func (c *cutConn) Write(p []byte) (int, error) {
	if s := string(p); strings.Contains(s, "evalsha") || strings.Contains(s, "\r\neval\r\n") {
		c.c.Scripts.Add(1)
		c.c.mu.Lock()
		c.armed.Store(int32(c.c.mode))
		c.c.mu.Unlock()
	}
	return c.Conn.Write(p)
}

// Read waits for the reply however long it takes, so that the script has run
// when the fault shows, and no test depends on how fast the machine is. After
// the fault the connection stays as it is: go-redis may look twice.
func (c *cutConn) Read(p []byte) (int, error) {
	mode := cutMode(c.armed.Load())
	if mode == cutNothing {
		return c.Conn.Read(p)
	}
	if !c.cut.Swap(true) {
		_ = c.SetReadDeadline(time.Time{})
		if n, err := c.Conn.Read(p); err != nil {
			return n, err
		}
		c.c.Cuts.Add(1)
	}
	if mode == cutReply {
		return 0, io.EOF
	}
	return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
}

const (
	hour  = time.Hour
	never = lua.Time(1) << 52 // no server clock passes this
	// seeded is a fence ahead of every clock, so that the next one is known.
	seeded = 5_000_000_000_000_000
)

var names = key.ForMutex("orders:42")

// prepare runs commands in which L, F, C, Q and A stand for the lock, the fence,
// the channel, the queue and its heartbeats; a:1/w for the waiter a:1 as it
// stands in the queue, with a heartbeat of 1h and a lease of 4h; a:1/s for one with 10h
// and 2h, a:1/none for one without time, a:1/bare for one without a description; and +2h for the
// server's clock in two hours.
func prepare(t testing.TB, rdb *redis.Client, commands ...string) {
	t.Helper()
	replace := strings.NewReplacer("@L", names.Lock, "@F", names.Fence, "@C", names.Channel, "@Q", names.Queue, "@A", names.Alive,
		"/w", " 1 3600000 14400000 host-1", "/s", " 1 36000000 7200000 host-1", "/none", " 1 0 14400000 host-1", "/bare", " 1 3600000 14400000")
	for _, line := range commands {
		var args []any
		for _, w := range strings.Fields(line) {
			if n, ahead := strings.CutSuffix(w, "h"); ahead && strings.ContainsAny(w[:1], "+-") {
				hours, err := strconv.ParseFloat(n, 64)
				require.NoError(t, err)
				w = strconv.FormatInt(serverTime(t, rdb).Add(time.Duration(hours*float64(hour))).UnixMilli(), 10)
			}
			args = append(args, replace.Replace(w))
		}
		require.NoError(t, rdb.Do(t.Context(), args...).Err(), line)
	}
}

// showSorted shows who is in a queue, in order, with the ticket; or, by name,
// until when its heartbeat lasts from now, in hours rounded up.
func showSorted(t testing.TB, rdb *redis.Client, k string) (shown []string) {
	members, err := rdb.ZRangeWithScores(t.Context(), k, 0, -1).Result()
	require.NoError(t, err)
	now := serverTime(t, rdb)
	for _, m := range members {
		who, _, _ := strings.Cut(m.Member.(string), " ")
		left := m.Score - float64(now.UnixMilli())
		end := fmt.Sprintf("%dh", int(math.Ceil(left/float64(hour.Milliseconds()))))
		switch {
		case k == names.Queue && m.Score > 1e15 && m.Score < seeded:
			end = "clock"
		case k == names.Queue:
			end = strconv.FormatFloat(m.Score, 'f', 0, 64)
		case m.Score < 0:
			end = "note"
		case left <= 0:
			end = "over"
		}
		shown = append(shown, who+"="+end)
	}
	if k == names.Alive {
		slices.Sort(shown)
	}
	return shown
}

// keyspace is everything that is stored, as text: for each key its type, its
// TTL in hours rounded up, its content. A fence that came from the clock shows
// as "clock".
func keyspace(t testing.TB, rdb *redis.Client) string {
	t.Helper()
	ctx := t.Context()
	var parts []string
	add := func(short, k string) {
		typ, err := rdb.Type(ctx, k).Result()
		require.NoError(t, err)
		var content string
		switch typ {
		case "none":
			return
		case "hash":
			fields, err := rdb.HGetAll(ctx, k).Result()
			require.NoError(t, err)
			content = strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(fields), "map["), "]")
		case "string":
			content, err = rdb.Get(ctx, k).Result()
			require.NoError(t, err)
			if n, err := strconv.ParseInt(content, 10, 64); err == nil && n > 1_000_000_000_000_000 && n < seeded {
				content = "clock"
			}
		case "zset":
			content = strings.Join(showSorted(t, rdb, k), " ")
		default:
			content = typ
		}
		ttl, err := rdb.PTTL(ctx, k).Result()
		require.NoError(t, err)
		class := "forever"
		if ttl > 0 {
			class = fmt.Sprintf("%dh", (ttl+hour-1)/hour)
		}
		parts = append(parts, fmt.Sprintf("%s %s %s", short, class, content))
	}
	add("lock", names.Lock)
	add("fence", names.Fence)
	add("queue", names.Queue)
	add("alive", names.Alive)
	size, err := rdb.DBSize(ctx).Result()
	require.NoError(t, err)
	require.EqualValues(t, len(parts), size, "keys that no script has in KEYS")
	return strings.Join(parts, "; ")
}
