package lua

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// header is what a script says of itself, by the grammar of its first comment:
//
//	purpose  verb ":" one sentence
//	keys     { "KEYS[" n "]"  type  pattern  meaning }
//	args     { "ARGV[" n "]"  type  unit     meaning }
//	returns  "Returns" { reply  meaning }
//	notes    "Guarantees" "Twice" "Cost"
//	includes [ "include" { name } ]
//
// Further includes may stand in the body, behind the common case that does not need them.
type header struct {
	verb, purpose string
	keys, args    []string // the index as it is written: "1", "i", "2i-1"
	returns       []string
	notes         map[string]string
}

var (
	purposeLine = regexp.MustCompile(`^([a-z_]+): ([a-z].*\.)$`)
	keyLine     = regexp.MustCompile(`^KEYS\[([\w-]+)\] {2,}(string|hash|zset|list|set) {2,}(\S.*?)(?: {2,}(\S.*))?$`)
	argLine     = regexp.MustCompile(`^ARGV\[([\w+-]+)\] +(string|int|channel) +(-|ms|us) +(\S.*)$`)
	replyLine   = regexp.MustCompile(`^ {2,}(\{.*?\}|now_us|'free'|error [A-Z]+)(?: {2,}(\S.*))?$`)
	noteLine    = regexp.MustCompile(`^(Guarantees|Twice|Cost) +(\S.*)$`)
	more        = regexp.MustCompile(`^ {8,}\S`)
)

// split parts a file into the text of its first comment and the code.
func split(text string) (comment []string, code string) {
	lines := strings.Split(text, "\n")
	n := 0
	for n < len(lines) && strings.HasPrefix(lines[n], "--") {
		comment = append(comment, strings.TrimPrefix(strings.TrimPrefix(lines[n], "--"), " "))
		n++
	}
	return comment, strings.Join(lines[n:], "\n")
}

func parseHeader(t *testing.T, comment []string) header {
	t.Helper()
	h := header{notes: map[string]string{}}
	m := purposeLine.FindStringSubmatch(comment[0])
	require.NotNil(t, m, "purpose: %q", comment[0])
	h.verb, h.purpose = m[1], m[2]
	order, inReturns := 0, false
	at := func(place int, line string) {
		require.LessOrEqual(t, order, place, "out of order: %q", line)
		order = place
	}
	for _, line := range comment[1:] {
		switch {
		case line == "":
			inReturns = false
		case strings.HasPrefix(line, "KEYS["):
			at(1, line)
			m := keyLine.FindStringSubmatch(line)
			require.NotNil(t, m, "key: %q", line)
			h.keys = append(h.keys, m[1])
		case strings.HasPrefix(line, "ARGV["):
			at(2, line)
			m := argLine.FindStringSubmatch(line)
			require.NotNil(t, m, "argument: %q", line)
			h.args = append(h.args, m[1])
		case line == "Returns":
			at(3, line)
			inReturns = true
		case inReturns:
			if more.MatchString(line) && !strings.Contains(line, "{") {
				continue // the meaning of the reply before goes on
			}
			m := replyLine.FindStringSubmatch(line)
			require.NotNil(t, m, "reply: %q", line)
			h.returns = append(h.returns, m[1])
		case noteLine.MatchString(line):
			m := noteLine.FindStringSubmatch(line)
			at(4+len(h.notes), line)
			require.NotContains(t, h.notes, m[1])
			require.Equal(t, []string{"Guarantees", "Twice", "Cost"}[len(h.notes)], m[1], "order of the notes")
			h.notes[m[1]] = m[2]
		case more.MatchString(line):
			require.NotEmpty(t, h.notes, "stray line %q", line)
		case strings.HasPrefix(line, "include "):
			at(9, line)
		default:
			require.Fail(t, "no part of a header", "%q", line)
		}
	}
	return h
}

var allScripts = map[string]*script{
	"mutex/acquire": acquireScript, "mutex/release": releaseScript, "mutex/transfer": transferScript,
	"mutex/renew": renewScript, "mutex/keep": keepScript, "mutex/keep_fences": keepFencesScript, "mutex/force_release": forceReleaseScript, "mutex/inspect": inspectScript,
	"fair/join": joinScript, "fair/beat": beatScript, "fair/leave": leaveScript,
	"fair/force_release": forceFairScript, "queue/remove": removeScript, "queue/list": listScript, "queue/find": findScript,
	"semaphore/acquire": acquirePermitsScript, "semaphore/beat": beatPermitsScript, "semaphore/release": releasePermitsScript,
	"semaphore/renew": renewPermitsScript, "semaphore/keep": keepPermitScript, "semaphore/resize": resizeScript,
	"semaphore/force_release": forcePermitsScript, "semaphore/inspect": inspectPermitsScript,
	"pubsub/echo": echoScript,
}

// batches are the scripts that take as many locks as they are given.
var batches = []string{"mutex/keep_fences", "mutex/renew", "fair/beat", "semaphore/beat", "semaphore/renew"}

func eachScript(t *testing.T, test func(t *testing.T, name, text string)) {
	t.Helper()
	files, err := fs.Glob(sources, "*/*.lua")
	require.NoError(t, err)
	files = slices.DeleteFunc(files, func(file string) bool { return strings.HasPrefix(file, "include/") })
	require.Len(t, files, len(allScripts), "a file that no function sends")
	for _, file := range files {
		text, err := sources.ReadFile(file)
		require.NoError(t, err)
		name := strings.TrimSuffix(file, ".lua")
		require.Contains(t, allScripts, name)
		require.Equal(t, file, allScripts[name].name)
		t.Run(name, func(t *testing.T) { test(t, name, string(text)) })
	}
}

func TestHeadersSayEverythingThatCallersMustKnow(t *testing.T) {
	eachScript(t, func(t *testing.T, name, text string) {
		comment, _ := split(text)
		h := parseHeader(t, comment)
		require.Equal(t, path.Base(name), h.verb, "purpose and file name")
		require.NotEmpty(t, h.keys)
		require.NotEmpty(t, h.returns)
		for _, note := range []string{"Guarantees", "Twice", "Cost"} {
			require.NotEmpty(t, h.notes[note], note)
		}
		for _, line := range strings.Split(text, "\n") {
			require.LessOrEqual(t, len(line), 120)
			require.NotRegexp(t, `\s$|\t`, line)
		}
	})
}

var queueOfRelease = regexp.MustCompile(`release_alone\(acquisition, (\d),`)

var indexed = regexp.MustCompile(`\b(KEYS|ARGV)\[([^]]+)\]`)

// used gives the indices of KEYS or ARGV in code, in order, without spaces.
func used(code, table string) []string {
	var found []string
	for _, m := range indexed.FindAllStringSubmatch(code, -1) {
		if m[1] == table {
			found = append(found, strings.NewReplacer(" ", "", "*", "").Replace(m[2]))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// placed puts the places in which includes look for keys, at+1 to at+4, where
// the script that includes them has them: it says so in its calls.
func placed(t *testing.T, declared []string, code string, found []string) []string {
	t.Helper()
	var keys []string
	for _, k := range found {
		if k == "queue" { // release_alone(acquisition, 2, ...)
			k = queueOfRelease.FindStringSubmatch(code)[1]
		}
		n, counted := strings.CutPrefix(k, "at+")
		if !counted {
			keys = append(keys, k)
			continue
		}
		i, err := strconv.Atoi(n)
		require.NoError(t, err)
		switch {
		case slices.Contains(declared, "4i"): // look(4 * i - 4, ...)
			keys = append(keys, strings.TrimSuffix(fmt.Sprintf("4i-%d", 4-i), "-0"))
		case slices.Contains(declared, "2i"): // renew(2 * i - 2, ...)
			keys = append(keys, strings.TrimSuffix(fmt.Sprintf("2i-%d", 2-i), "-0"))
		case slices.Contains(declared, "i"): // renew(i - 1, ...)
			keys = append(keys, "i")
		case n == "1" && strings.Contains(code, "writes_refused(0)"): // whatever the others look at
			keys = append(keys, n)
		case strings.Contains(code, "(-2"):
			keys = append(keys, strconv.Itoa(i-2))
		default:
			keys = append(keys, n)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func TestHeadersAndBodiesUseTheSameKeysAndArguments(t *testing.T) {
	eachScript(t, func(t *testing.T, name, text string) {
		comment, code := split(text)
		h := parseHeader(t, comment)
		body, err := assemble(name + ".lua")
		require.NoError(t, err)
		if name == "pubsub/echo" {
			h.keys = nil // its only key is for the slot
		}
		require.ElementsMatch(t, h.keys, placed(t, h.keys, code, used(body, "KEYS")), "KEYS")
		require.ElementsMatch(t, h.args, used(body, "ARGV"), "ARGV")
		for _, list := range [][]string{h.keys, h.args} {
			if slices.Contains(batches, name) {
				continue // as many as there are locks
			}
			for i, n := range list {
				require.Equal(t, strconv.Itoa(i+1), n, "numbered from 1 without a gap")
			}
		}
	})
}

var renaming = regexp.MustCompile(`^local [a-z_, ]+ = .*ARGV\[`)

func TestArgumentsAreNamedInTheFirstLinesAndNeverIndexedAgain(t *testing.T) {
	eachScript(t, func(t *testing.T, name, text string) {
		if slices.Contains(batches, name) {
			return // it walks through as many arguments as there are locks
		}
		_, code := split(text)
		lines := strings.Split(strings.TrimSpace(code), "\n")
		for len(lines) > 0 && renaming.MatchString(lines[0]) {
			left, right, _ := strings.Cut(lines[0], " = ")
			vars := strings.Split(strings.TrimPrefix(left, "local "), ", ")
			values := strings.Split(right, ", ")
			require.Len(t, values, len(vars), lines[0])
			for i, v := range values {
				require.Regexp(t, `^(tonumber\(ARGV\[\d\]\)|ARGV\[\d\])$`, v)
				unit := regexp.MustCompile(`ARGV\[` + used(v, "ARGV")[0] + `\] +\w+ +(ms|us) `).FindStringSubmatch(text)
				if unit != nil {
					require.True(t, strings.HasSuffix(vars[i], "_"+unit[1]), "%s is in %s", vars[i], unit[1])
				}
			}
			lines = lines[1:]
		}
		require.NotContains(t, strings.Join(lines, "\n"), "ARGV")
	})
}

// Every reply of a body is in the header, by its first field and its length.
func TestHeadersListTheRepliesOfTheBody(t *testing.T) {
	shape := func(reply string) string {
		fields := strings.Split(strings.Trim(reply, "{}"), ",")
		return strings.TrimSpace(fields[0]) + "/" + strconv.Itoa(len(fields))
	}
	literal := regexp.MustCompile(`(?m)(?:return|or) (\{-?\d[^}]*\})`)
	short := regexp.MustCompile(`(?m)return (?:.* )?(now_us|'free')(?: or .*)?$`)
	ours := regexp.MustCompile(`error_reply\('([A-Z]+) `)
	eachScript(t, func(t *testing.T, name, text string) {
		if name == "mutex/inspect" || name == "queue/list" || name == "semaphore/inspect" || slices.Contains(batches, name) {
			return // one reply, of as many fields as are listed or locks sent
		}
		comment, code := split(text)
		var listed, given []string
		for _, r := range parseHeader(t, comment).returns {
			if word, ok := strings.CutPrefix(r, "error "); ok {
				listed = append(listed, word)
			} else {
				listed = append(listed, shape(r))
			}
		}
		for _, m := range literal.FindAllStringSubmatch(strings.ReplaceAll(code, "redis.call('PTTL', KEYS[1])", "ttl"), -1) {
			given = append(given, shape(m[1]))
		}
		for _, m := range short.FindAllStringSubmatch(code, -1) {
			given = append(given, shape(m[1]))
		}
		for _, m := range ours.FindAllStringSubmatch(code, -1) {
			given = append(given, m[1])
		}
		for call, word := range map[string]string{"bad_fence()": "BADFENCE", "not_mutex()": "WRONGTYPE"} {
			if strings.Contains(code, "return "+call) {
				given = append(given, word)
			}
		}
		slices.Sort(given)
		require.ElementsMatch(t, slices.Compact(given), listed)
	})
}

// includeFile is one file of lua/include: its functions, and the files that it includes.
type includeFile struct {
	includes []string
	code     map[string]string // by the name of what it declares
}

var topicLine = regexp.MustCompile(`^(\w+): [a-z].*\.$`)

func includeFiles(t *testing.T) map[string]includeFile {
	t.Helper()
	paths, err := fs.Glob(sources, "include/*.lua")
	require.NoError(t, err)
	files := map[string]includeFile{}
	for _, file := range paths {
		text, err := sources.ReadFile(file)
		require.NoError(t, err)
		name := strings.TrimSuffix(path.Base(file), ".lua")
		comment, _ := split(string(text))
		m := topicLine.FindStringSubmatch(strings.Join(comment, "\n"))
		if i := slices.IndexFunc(comment, func(line string) bool { return strings.HasPrefix(line, "include ") }); i > 0 {
			m = topicLine.FindStringSubmatch(strings.Join(comment[:i], " "))
		}
		require.NotNil(t, m, "%s begins with its topic", file)
		require.Equal(t, name, m[1], file)

		f := includeFile{code: map[string]string{}}
		var l library
		for _, part := range splitAtIncludes(string(text)) {
			f.includes = append(f.includes, part.includes...)
			require.NoError(t, l.declare(part.code))
		}
		for _, d := range l.declarations {
			require.LessOrEqual(t, strings.Count(d.code, "\n"), 25, "%s %s", file, d.name)
			f.code[d.name] = d.code
		}
		files[name] = f
	}
	return files
}

func uses(code, name string) bool { return regexp.MustCompile(`\b` + name + `\b`).MatchString(code) }

// usesOf returns the files that declare what code uses.
func usesOf(code string, files map[string]includeFile) (names []string) {
	for name, file := range files {
		for declared := range file.code {
			if uses(code, declared) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestScriptsAndIncludesNameTheFilesThatTheyUse(t *testing.T) {
	files := includeFiles(t)
	for name, file := range files {
		code := strings.Join(slices.Collect(maps.Values(file.code)), "")
		others := maps.Clone(files)
		delete(others, name)
		require.ElementsMatch(t, usesOf(code, others), file.includes, name)
	}
	eachScript(t, func(t *testing.T, _, text string) {
		var named []string
		for _, part := range splitAtIncludes(text) {
			used := usesOf(withoutComments(part.code), files)
			for _, include := range part.includes {
				require.NotContains(t, named, include, "included twice")
				require.Contains(t, used, include, "included and not used before the next includes")
			}
			named = append(named, part.includes...)
			require.Subset(t, named, used)
		}
	})
}

func TestEveryFunctionOfTheIncludesIsInAScriptOnceAndBehindWhatItUses(t *testing.T) {
	reached := map[string]bool{}
	files := includeFiles(t)
	for name := range allScripts {
		body, err := assemble(name + ".lua")
		require.NoError(t, err)
		for file, include := range files {
			for declared, code := range include.code {
				at := strings.Index(body, code)
				if at < 0 {
					require.False(t, uses(body, declared), "%s uses %s and lacks it", name, declared)
					continue
				}
				reached[declared] = true
				require.Equal(t, 1, strings.Count(body, code), "%s in %s", declared, name)
				require.False(t, uses(body[:at], declared), "%s uses %s of %s before it is there", name, declared, file)
				require.True(t, uses(body[at+len(code):], declared), "%s has %s and does not use it", name, declared)
			}
		}
	}
	for file, include := range files {
		for declared := range include.code {
			require.True(t, reached[declared], "no script uses %s of %s", declared, file)
		}
	}
}

// The server makes every function of a script anew in each call, so the common case comes before
// those that it does not need.
func TestTheCommonCaseStandsBeforeTheFunctionsOfTheOthers(t *testing.T) {
	for name, common := range map[string]string{
		"mutex/acquire": "\nif free and holds == 1 then\n", "mutex/release": "\nif holds_left == 0 then\n",
		"fair/join": "\nif present == 0 then\n", "fair/leave": "\nif receivers then\n",
		"mutex/transfer":    "\nif extended == 1 and exported == '0' then\n",
		"semaphore/acquire": "\nif kept then\n",
		"semaphore/release": "\nif length == 0 then\n",
	} {
		body, err := assemble(name + ".lua")
		require.NoError(t, err)
		before, after, found := strings.Cut(body, common)
		require.True(t, found, name)
		require.LessOrEqual(t, strings.Count(before, "\nlocal function "), 8, name)
		require.Greater(t, strings.Count(after, "\nlocal function "), 4, name)
	}
}

func TestAnIncludeThatIsMissingIsAnError(t *testing.T) {
	require.Equal(t, []section{{code: "-- x: y.\n"}, {includes: []string{"a", "b"}}, {includes: []string{"c"}, code: "code\n"}},
		splitAtIncludes("-- x: y.\n-- include a b\n-- include c\ncode\n"))
	_, err := assemble("mutex/none.lua")
	require.ErrorIs(t, err, fs.ErrNotExist)
	var l library
	require.ErrorIs(t, l.add("none"), fs.ErrNotExist)
	require.ErrorContains(t, l.declare("return 1\n"), "declares nothing")
}

func TestCommentsAreNotSent(t *testing.T) {
	for name, s := range allScripts {
		for line := range strings.Lines(s.load().body) {
			require.NotContains(t, line, "--", name)
		}
		require.Len(t, s.load().sha, 40)
	}
}

// recorder keeps what would be sent.
type recorder struct{ args []any }

func (r *recorder) Process(_ context.Context, cmd redis.Cmder) error {
	r.args = cmd.Args()
	return redis.ErrClosed
}

func TestFunctionsSendAsManyKeysAndArgumentsAsTheHeaderSays(t *testing.T) {
	ctx := t.Context()
	send := map[string]func(Redis){
		"mutex/acquire":       func(r Redis) { _, _ = Acquire(ctx, r, AcquireParams{LockKey: "l", FenceKey: "f", QueueKey: "q"}) },
		"mutex/release":       func(r Redis) { _, _ = Release(ctx, r, ReleaseParams{LockKey: "l", Channel: "c"}) },
		"mutex/transfer":      func(r Redis) { _, _ = Transfer(ctx, r, TransferParams{LockKey: "l", FenceKey: "f"}) },
		"mutex/force_release": func(r Redis) { _, _ = ForceRelease(ctx, r, ForceReleaseParams{LockKey: "l", Channel: "c"}) },
		"mutex/inspect":       func(r Redis) { _, _ = Inspect(ctx, r, "l", "f") },
		"pubsub/echo":         func(r Redis) { _, _ = Echo(ctx, r, "k", "c", "t") },
		"mutex/renew":         func(r Redis) { _, _ = Renew(ctx, r, make([]Renewal, 3)) },
		"mutex/keep_fences":   func(r Redis) { _, _ = KeepFences(ctx, r, []any{"f", "g", "h"}, 0) },
		"mutex/keep":          func(r Redis) { _, _ = Keep(ctx, r, KeepParams{}) },
		"fair/join":           func(r Redis) { _, _ = Join(ctx, r, JoinParams{}) },
		"fair/beat":           func(r Redis) { _, _ = Heartbeats(ctx, r, 0, "c", true, make([]Heartbeat, 3)) },
		"fair/leave":          func(r Redis) { _, _ = ReleaseFair(ctx, r, ReleaseFairParams{}) },
		"fair/force_release":  func(r Redis) { _, _ = ForceReleaseFair(ctx, r, ForceReleaseFairParams{}) },
		"queue/remove":        func(r Redis) { _, _ = Remove(ctx, r, "q", "a", Waiter{}, "c") },
		"queue/list":          func(r Redis) { _, _ = Queue(ctx, r, "q", "a", 0, "", 1) },
		"queue/find":          func(r Redis) { _, _ = Find(ctx, r, "q", "a", "b:1", "", 1) },

		"semaphore/acquire":       func(r Redis) { _, _ = AcquirePermits(ctx, r, AcquirePermitsParams{}) },
		"semaphore/beat":          func(r Redis) { _, _ = PermitHeartbeats(ctx, r, 0, "c", true, make([]PermitHeartbeat, 3)) },
		"semaphore/release":       func(r Redis) { _, _ = ReleasePermits(ctx, r, ReleasePermitsParams{}) },
		"semaphore/renew":         func(r Redis) { _, _ = RenewPermits(ctx, r, 0, make([]PermitRenewal, 3)) },
		"semaphore/keep":          func(r Redis) { _, _ = KeepPermit(ctx, r, KeepPermitParams{}) },
		"semaphore/resize":        func(r Redis) { _, _ = Resize(ctx, r, ResizeParams{}) },
		"semaphore/force_release": func(r Redis) { _, _, _ = ForceReleasePermits(ctx, r, SemaphoreKeys{}, "a", 0, "c") },
		"semaphore/inspect":       func(r Redis) { _, _ = InspectPermits(ctx, r, SemaphoreKeys{}, 1) },
	}
	eachScript(t, func(t *testing.T, name, text string) {
		var got recorder
		require.Contains(t, send, name)
		send[name](&got)
		comment, _ := split(text)
		h := parseHeader(t, comment)
		keys, args := len(h.keys), len(h.args)
		switch name {
		case "mutex/keep_fences":
			keys = 3 * keys
		case "mutex/renew":
			keys, args = 3*keys, 3*args
		case "fair/beat", "semaphore/beat":
			keys, args = 3*keys, 3+3*(args-3)
		case "semaphore/renew":
			keys, args = 3*keys, 1+3*(args-1)
		}
		require.Equal(t, "evalsha", got.args[0])
		require.Equal(t, allScripts[name].load().sha, got.args[1])
		require.Equal(t, strconv.Itoa(keys), fmt.Sprint(got.args[2]))
		require.Len(t, got.args, 3+keys+args)
	})
}

func TestUnitsOfArguments(t *testing.T) {
	var got recorder
	_, _ = Acquire(t.Context(), &got, AcquireParams{
		LockKey: "l", FenceKey: "f", QueueKey: "q", Acquisition: "a", Lease: 30 * time.Second, Holds: 2,
		VoidAfter: Time(1_700_000_000_123_456).Add(time.Millisecond), FenceRetention: time.Minute, Description: "me",
	})
	require.Equal(t, []any{"l", "f", "q", "a", int64(30000), 2, int64(1_700_000_000_124_456), int64(60000), "me"}, got.args[3:])
	_, _ = Transfer(t.Context(), &got, TransferParams{LockKey: "l", FenceKey: "f", From: "a", To: "b", Lease: time.Second, VoidAfter: 5})
	require.Equal(t, []any{"l", "f", "a", "b", int64(1000), int64(5), int64(0), 0, ""}, got.args[3:])
	_, _ = Renew(t.Context(), &got, []Renewal{{"l", "a", time.Second}, {"m", "b", 0}})
	require.Equal(t, []any{"l", "m", "a", int64(1000), "b", int64(0)}, got.args[3:])
	_, _ = Release(t.Context(), &got, ReleaseParams{LockKey: "l", QueueKey: "q", Channel: "c", Acquisition: "a", HoldsLeft: 3, VoidAfter: 5})
	require.Equal(t, []any{"l", "q", "a", 3, "c", 0, int64(5)}, got.args[3:])
	_, _ = Release(t.Context(), &got, ReleaseParams{LockKey: "l", QueueKey: "q", Channel: "c", Acquisition: "a", Cluster: true})
	require.Equal(t, []any{"l", "q", "a", 0, "c", 1, int64(0)}, got.args[3:])
}

// What Redis 6.2, 7.0, Valkey and the embedded server have in common; and SPUBLISH,
// which 6.2 refuses, without harm to who asks by pcall.
var (
	allowedCommands = []string{"TIME", "HGETALL", "HEXISTS", "HSET", "HDEL", "GET", "SET", "PTTL", "PEXPIRE", "DEL", "PUBLISH", "SPUBLISH",
		"EXISTS", "HGET", "PERSIST", "ZCOUNT", "ZADD", "ZREM", "ZSCORE", "ZCARD", "ZRANK", "ZRANGE", "ZRANGEBYSCORE"}
	allowedFunctions = []string{
		"redis.call", "redis.pcall", "redis.error_reply", "tonumber", "type", "math.max", "math.min", "math.floor",
		"string.gsub", "string.sub", "string.match", "string.format", "table.concat", "unpack",
	}
	keyless = []string{"TIME", "PUBLISH", "SPUBLISH"}
)

func TestScriptsKeepToTheLuaThatAllServersShare(t *testing.T) {
	eachScript(t, func(t *testing.T, name, _ string) {
		body, err := assemble(name + ".lua")
		require.NoError(t, err)
		for _, complaint := range lint(t, body) {
			t.Error(complaint)
		}
	})
}

func TestTheLintFindsWhatItIsFor(t *testing.T) {
	for code, want := range map[string]string{
		`x = 1`:                                          "global assignment: x",
		`function f() end`:                               "global function",
		`local y = z`:                                    "unknown name: z",
		`redis.call('KEYS', '*')`:                        "command not allowed: KEYS",
		`redis.call('hset', KEYS[1], 'a', 1)`:            "command not allowed: hset",
		`redis.call(ARGV[1], KEYS[1])`:                   "command is no literal",
		`redis.call('DEL', ARGV[1])`:                     "key is no literal KEYS[...]",
		`redis.call('DEL', 'x' .. KEYS[1])`:              "key is no literal KEYS[...]",
		`local k = KEYS[1] redis.call('DEL', k)`:         "key is no literal KEYS[...]",
		`local function f(a) return cjson.encode(a) end`: "unknown name: cjson",
		`local a = tostring(1)`:                          "unknown name: tostring",
		`local a = 'x' .. 1`:                             "number formatted by ..",
		`if a then b = 1 end`:                            "global assignment: b",
		`for i = 1, 2 do redis.call('GET', 1) end`:       "key is no literal KEYS[...]",
		`local f = redis.call`:                           "redis.call is not called here",
		`redis.setresp(3)`:                               "function not allowed: redis.setresp",
	} {
		require.Contains(t, strings.Join(lint(t, code), "\n"), want, code)
	}
	require.Empty(t, lint(t, `local a = ARGV[1] for i = 1, #KEYS do if a == '' then break end redis.pcall('DEL', KEYS[i]) end return {a}`))
}

// lint walks a script and complains about what the servers do not share.
func lint(t *testing.T, code string) []string {
	t.Helper()
	chunk, err := parse.Parse(strings.NewReader(code), "script")
	require.NoError(t, err)
	l := &linter{known: []map[string]bool{{"KEYS": true, "ARGV": true, "pcall": true, "tonumber": true, "type": true, "unpack": true}}}
	l.block(chunk)
	return l.complaints
}

type linter struct {
	known      []map[string]bool
	complaints []string
}

func (l *linter) complain(what string) { l.complaints = append(l.complaints, what) }

func (l *linter) declare(names ...string) {
	for _, n := range names {
		l.known[len(l.known)-1][n] = true
	}
}

func (l *linter) isKnown(name string) bool {
	return slices.ContainsFunc(l.known, func(scope map[string]bool) bool { return scope[name] })
}

func (l *linter) block(stmts []ast.Stmt, names ...string) {
	l.known = append(l.known, map[string]bool{})
	l.declare(names...)
	for _, s := range stmts {
		l.stmt(s)
	}
	l.known = l.known[:len(l.known)-1]
}

func (l *linter) stmt(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.LocalAssignStmt:
		if len(s.Exprs) == 1 {
			if _, ok := s.Exprs[0].(*ast.FunctionExpr); ok {
				l.declare(s.Names...)
			}
		}
		l.exprs(s.Exprs)
		l.declare(s.Names...)
	case *ast.AssignStmt:
		for _, left := range s.Lhs {
			if id, ok := left.(*ast.IdentExpr); ok && (!l.isKnown(id.Value) || l.known[0][id.Value]) {
				l.complain("global assignment: " + id.Value)
				continue
			}
			l.expr(left)
		}
		l.exprs(s.Rhs)
	case *ast.FuncCallStmt:
		l.expr(s.Expr)
	case *ast.IfStmt:
		l.expr(s.Condition)
		l.block(s.Then)
		l.block(s.Else)
	case *ast.NumberForStmt:
		l.expr(s.Init)
		l.expr(s.Limit)
		if s.Step != nil {
			l.expr(s.Step)
		}
		l.block(s.Stmts, s.Name)
	case *ast.ReturnStmt:
		l.exprs(s.Exprs)
	case *ast.BreakStmt:
	case *ast.FuncDefStmt:
		l.complain("global function")
	default:
		l.complain("statement not allowed: " + fmt.Sprintf("%T", s))
	}
}

func (l *linter) exprs(list []ast.Expr) {
	for _, e := range list {
		l.expr(e)
	}
}

func (l *linter) expr(e ast.Expr) {
	switch e := e.(type) {
	case *ast.IdentExpr:
		if !l.isKnown(e.Value) {
			l.complain("unknown name: " + e.Value)
		}
	case *ast.AttrGetExpr:
		if name := dotted(e); name == "redis.call" || name == "redis.pcall" {
			l.complain(name + " is not called here")
			return
		}
		l.expr(e.Object)
		l.expr(e.Key)
	case *ast.FuncCallExpr:
		l.call(e)
	case *ast.FunctionExpr:
		l.block(e.Stmts, e.ParList.Names...)
	case *ast.TableExpr:
		for _, f := range e.Fields {
			if f.Key != nil {
				l.expr(f.Key)
			}
			l.expr(f.Value)
		}
	case *ast.StringConcatOpExpr:
		l.complain("number formatted by ..")
	case *ast.LogicalOpExpr:
		l.exprs([]ast.Expr{e.Lhs, e.Rhs})
	case *ast.RelationalOpExpr:
		l.exprs([]ast.Expr{e.Lhs, e.Rhs})
	case *ast.ArithmeticOpExpr:
		l.exprs([]ast.Expr{e.Lhs, e.Rhs})
	case *ast.UnaryNotOpExpr:
		l.expr(e.Expr)
	case *ast.UnaryMinusOpExpr:
		l.expr(e.Expr)
	case *ast.UnaryLenOpExpr:
		l.expr(e.Expr)
	case *ast.TrueExpr, *ast.FalseExpr, *ast.NilExpr, *ast.NumberExpr, *ast.StringExpr:
	default:
		l.complain("expression not allowed: " + fmt.Sprintf("%T", e))
	}
}

func (l *linter) call(e *ast.FuncCallExpr) {
	name := dotted(e.Func)
	if id, ok := e.Func.(*ast.IdentExpr); ok && e.Receiver == nil {
		l.expr(id)
	} else if !slices.Contains(allowedFunctions, name) {
		l.complain("function not allowed: " + name)
		if object, _, ok := strings.Cut(name, "."); ok && object != "redis" && !l.isKnown(object) {
			l.complain("unknown name: " + object)
		}
	}
	if name == "redis.call" || name == "redis.pcall" {
		l.command(e.Args)
	}
	l.exprs(e.Args)
}

func (l *linter) command(args []ast.Expr) {
	var command *ast.StringExpr
	if len(args) > 0 {
		command, _ = args[0].(*ast.StringExpr)
	}
	if command == nil {
		l.complain("command is no literal")
		return
	}
	if !slices.Contains(allowedCommands, command.Value) {
		l.complain("command not allowed: " + command.Value)
	}
	if slices.Contains(keyless, command.Value) {
		return
	}
	if len(args) > 1 {
		if get, ok := args[1].(*ast.AttrGetExpr); ok {
			if id, ok := get.Object.(*ast.IdentExpr); ok && id.Value == "KEYS" {
				return
			}
		}
	}
	l.complain("key is no literal KEYS[...]: " + command.Value)
}

func dotted(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.IdentExpr:
		return e.Value
	case *ast.AttrGetExpr:
		object, ok := e.Object.(*ast.IdentExpr)
		if key, isText := e.Key.(*ast.StringExpr); ok && isText {
			return object.Value + "." + key.Value
		}
	}
	return ""
}
