package interop_test

import (
	"bufio"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// monitor records every command that a server runs, including those of scripts.
type monitor struct {
	t      *testing.T
	server *redistest.Server
	lines  chan string
	marks  int
}

func newMonitor(t *testing.T, server *redistest.Server) *monitor {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr())
	require.NoError(t, err)
	m := &monitor{t: t, server: server, lines: make(chan string, 100_000)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for said := bufio.NewScanner(conn); said.Scan(); {
			m.lines <- said.Text()
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-ended })
	_, err = fmt.Fprint(conn, "MONITOR\r\n")
	require.NoError(t, err)
	require.Equal(t, "+OK", within(t, m.lines, "MONITOR is answered"))
	return m
}

// cut returns the commands since the last cut, for clients that mention the name. Each command is a
// block with its words, and with the commands of its script, indented. It leaves out hashes of
// scripts, and the senders.
func (m *monitor) cut(name string) (blocks []string) {
	m.t.Helper()
	m.marks++
	mark := fmt.Sprintf("mark %d of %s", m.marks, name)
	require.NoError(m.t, m.server.Control().Echo(m.t.Context(), mark).Err())
	ours := false
	for {
		line := within(m.t, m.lines, "the mark is seen")
		if strings.Contains(line, mark) {
			return blocks
		}
		from, words := wordsOf(line)
		switch {
		case from == "lua" && ours:
			blocks[len(blocks)-1] += "\n    " + strings.Join(words, " ")
		case from != "lua":
			// Commands of the test itself are in lower case, because go-redis sends them so.
			ours = words[0] == strings.ToUpper(words[0]) && slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, name) })
			if ours {
				if strings.HasPrefix(words[0], "EVAL") {
					words = slices.Delete(words, 1, 2)
				}
				blocks = append(blocks, strings.Join(words, " "))
			}
		}
	}
}

var (
	monitored = regexp.MustCompile(`^\+[0-9.]+ \[\d+ ([^\]]+)\] (.*)$`)
	quoted    = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
)

func wordsOf(line string) (from string, words []string) {
	parts := monitored.FindStringSubmatch(line)
	if parts == nil {
		return "", []string{line}
	}
	for _, q := range quoted.FindAllString(parts[2], -1) {
		word, err := strconv.Unquote(q)
		if err != nil {
			word = q
		}
		words = append(words, readable(word))
	}
	return parts[1], words
}

// anonymous replaces parts that differ with each run. Owners become A1, A2 in the order in which
// they appear, and so on.
type anonymous map[string]string

var (
	owners  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:\d+`)
	varying = []struct {
		what *regexp.Regexp
		name string
	}{
		{regexp.MustCompile(`(redisson_unlock_latch:\S+):[0-9a-f]{32}`), "$1:ID"},
		{regexp.MustCompile(`\b(1[6-9]\d{3}|20000)\b`), "LATCHTTL"},
		{regexp.MustCompile(`\b(2[5-9]\d{3}|30000)\b`), "LEASE"},
		{regexp.MustCompile(`\b1[789]\d{11}\b`), "MS"},
	}
)

func (a anonymous) text(s string) string {
	s = owners.ReplaceAllStringFunc(s, func(owner string) string {
		if a[owner] == "" {
			a[owner] = "A" + strconv.Itoa(len(a)+1)
		}
		return a[owner]
	})
	for _, v := range varying {
		s = v.what.ReplaceAllString(s, v.name)
	}
	return s
}

// readable replaces a word that is not text: the id of a permit.
func readable(word string) string {
	if strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "PERMIT16"
	}
	return word
}

// keyspace returns the keys of a server. Each line is one key, with its type, its content, and
// whether it expires with the lease, at another time, or never. It leaves out the latches of
// Redisson, which a client uses alone.
func (a anonymous) keyspace(t *testing.T, rdb redis.UniversalClient) (lines []string) {
	t.Helper()
	ctx := t.Context()
	for _, key := range rdb.Keys(ctx, "*").Val() {
		if strings.HasPrefix(key, "redisson_unlock_latch:") {
			continue
		}
		kind := rdb.Type(ctx, key).Val()
		lines = append(lines, strings.Join([]string{"=", a.text(key), kind, a.content(t, rdb, key, kind), ending(rdb.PTTL(ctx, key).Val())}, " "))
	}
	slices.Sort(lines)
	return lines
}

func (a anonymous) content(t *testing.T, rdb redis.UniversalClient, key, kind string) string {
	t.Helper()
	ctx := t.Context()
	var parts []string
	switch kind {
	case "hash":
		for field, value := range rdb.HGetAll(ctx, key).Val() {
			parts = append(parts, a.text(field)+"="+value)
		}
	case "list":
		for _, member := range rdb.LRange(ctx, key, 0, -1).Val() {
			parts = append(parts, a.text(member))
		}
	case "zset":
		for _, z := range rdb.ZRangeWithScores(ctx, key, 0, -1).Val() {
			parts = append(parts, a.text(readable(fmt.Sprint(z.Member)))+"@score")
		}
	case "string":
		_, err := rdb.Get(ctx, key).Int64()
		require.NoError(t, err, "%s is no number", key)
		parts = []string{"number"}
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, " ") + "}"
}

func ending(ttl time.Duration) string {
	switch {
	case ttl < 0:
		return "for ever"
	case ttl <= 30*time.Second:
		return "for the lease"
	}
	return "for a time"
}
