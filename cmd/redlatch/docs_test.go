//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// page returns a page of docs, and its blocks of one language.
func page(t *testing.T, name, language string) (text string, blocks []string) {
	t.Helper()
	all, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	require.NoError(t, err)
	for _, match := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(all), -1) {
		blocks = append(blocks, match[1])
	}
	return string(all), blocks
}

var idText = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:\d+`)

// normalize replaces what differs from run to run.
func normalize(text string) string {
	for _, r := range []struct{ pattern, with string }{
		{idText.String(), "ID"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`, "TIME"},
		{`127\.0\.0\.1:\d+`, "ADDRESS"},
		{`(Redis|Valkey) \d+\.\d+\.\d+`, "SERVER"},
		{`\b\d{16}\b`, "FENCE"},
		{`\b\d+(\.\d+)?(µs|ms|s)\b|\b\d+[dhm]\d+[hms]\b`, "AGE"},
		{` +`, " "},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.with)
	}
	return strings.TrimSpace(text)
}

// sceneOfThePage is what docs/at-3-am.md shows.
func sceneOfThePage(t *testing.T, url string, server *redistest.Server) {
	t.Helper()
	// The page asks whether the holder lives, which its next renewal shows.
	hold, err := newLocks(t, server.Client(t), redlatch.WithDescription("web-3 pid 4242"), redlatch.WithRenewInterval(50*time.Millisecond)).FairMutex("orders:42").Lock(t.Context())
	require.NoError(t, err)
	const long = 50 * time.Second // a busy machine must not end a lease or a heartbeat
	patient := []redlatch.Option{redlatch.WithLease(long), redlatch.WithHeartbeat(long)}
	locks := newLocks(t, server.Client(t), patient...)
	permit, err := locks.Semaphore("render", 2).Acquire(t.Context(), 2)
	require.NoError(t, err)
	t.Cleanup(func() { runtime.KeepAlive(hold); runtime.KeepAlive(permit) })
	waits := func(client *redlatch.Client, wait func(placed redlatch.LockOption)) {
		placed := make(chan struct{}, 1000)
		go wait(redlatch.WithWaitCallback(func(redlatch.Waiting) { placed <- struct{}{} }))
		select {
		case <-placed:
		case <-time.After(guardTime):
			t.Fatal("no place in a queue")
		}
	}
	for _, description := range []string{"web-1 pid 977", "web-2 pid 1203"} {
		client := newLocks(t, server.Client(t), append(patient, redlatch.WithDescription(description))...)
		waits(client, func(placed redlatch.LockOption) { _, _ = client.FairMutex("orders:42", placed).Lock(t.Context()) })
	}
	client := newLocks(t, server.Client(t), patient...)
	waits(client, func(placed redlatch.LockOption) { _, _ = client.Semaphore("render", 2, placed).Acquire(t.Context(), 1) })
	eventually(t, func() bool { return strings.Contains(run(t, url, "show", "orders:42").out, "2 clients listen") }, "both waiters listen")
}

func TestThreeInTheMorning(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	sceneOfThePage(t, server.URL(), server)
	text, blocks := page(t, "at-3-am.md", "console")
	require.Len(t, blocks, 6)

	// The ids of the page stand for those of the scene.
	ids := map[string]string{}
	_, shown, _ := strings.Cut(blocks[1], "\n")
	onPage, real := idText.FindAllString(shown, -1), idText.FindAllString(run(t, server.URL(), "show", "orders:42").out, -1)
	require.Len(t, real, len(onPage))
	for i, id := range onPage {
		ids[id] = real[i]
	}
	translate := func(text string) string {
		return idText.ReplaceAllStringFunc(text, func(id string) string {
			require.Contains(t, ids, id, "an id that the page does not show")
			return ids[id]
		})
	}
	requireShell(t, server, text, translate, func(command string) bool { return strings.Contains(command, " EVAL ") }, false)
	for _, block := range blocks {
		command, want, _ := strings.Cut(block, "\n")
		t.Run(command, func(t *testing.T) {
			command, isCommand := strings.CutPrefix(command, "$ redlatch ")
			require.True(t, isCommand)
			env := []string{"REDIS_URL=" + server.URL()}
			if question, rest, asks := strings.Cut(want, " [y/N] y\n"); asks {
				s := startOnScreen(t, env, `"$redlatch" `+translate(command)+`; echo "code $?"`)
				s.awaitScreen("? [y/N]")
				out := strings.ReplaceAll(s.out.String(), "\r\n", "\n")
				require.Equal(t, normalize(question), normalize(strings.TrimSuffix(out, "[y/N] ")))
				s.press("y\n")
				s.awaitScreen("code 0")
				s.awaitScreen(strings.TrimSpace(translate(rest)))
				return
			}
			got := runIn(t, env, strings.Fields(translate(command))...)
			require.Equal(t, 0, got.code, got.err)
			require.Equal(t, normalize(want), normalize(got.out))
		})
	}
	requireShell(t, server, text, translate, func(command string) bool { return strings.Contains(command, " EVAL ") }, true)
}

// requireShell runs the commands of redis-cli on the page, those that pick returns or the others.
func requireShell(t *testing.T, server *redistest.Server, text string, translate func(string) string, pick func(string) bool, picked bool) {
	t.Helper()
	path, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Log("no redis-cli, so its commands did not run")
		return
	}
	ran := 0
	for _, command := range regexp.MustCompile(`(?m)^redis-cli .*$`).FindAllString(text, -1) {
		if pick(command) != picked {
			continue
		}
		ran++
		require.Contains(t, command, `redis-cli -u "$REDIS_URL" `, "redis-cli ignores REDIS_URL")
		cmd := exec.Command("bash", "-c", `redis-cli() { "`+path+`" -e "$@"; }; `+translate(command))
		cmd.Env = append(os.Environ(), "REDIS_URL="+server.URL())
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", command, out)
		if !strings.Contains(command, "SLOWLOG") { // nothing may have been slow
			require.NotEmpty(t, strings.TrimSpace(string(out)), command)
		}
	}
	require.NotZero(t, ran)
}

// The three commands of the quick start work on a machine that has only Go and a checkout. The test
// changes the port, because something may listen on that of Redis.
func TestTheQuickStart(t *testing.T) {
	t.Parallel()
	_, blocks := page(t, "command-line.md", "sh")
	commands := strings.Split(strings.TrimSpace(blocks[0]), "\n")
	require.Len(t, commands, 3)
	modules, err := exec.Command("go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	builds, err := exec.Command("go", "env", "GOCACHE").Output()
	require.NoError(t, err)
	env := []string{"GOPATH=" + t.TempDir(), "GOBIN=", "GOMODCACHE=" + strings.TrimSpace(string(modules)), "GOCACHE=" + strings.TrimSpace(string(builds))}
	shell := func(script string, more ...string) *process {
		p := command(t, append(env, more...))
		path, err := exec.LookPath("bash")
		require.NoError(t, err)
		p.cmd.Path, p.cmd.Args, p.cmd.Dir = path, []string{"bash", "-c", script}, filepath.Join("..", "..")
		return p.start()
	}
	const compileTime = 5 * time.Minute // a compiler on a busy machine
	server, isBackground := strings.CutSuffix(commands[0], " &")
	require.True(t, isBackground)
	p := shell(server + " 127.0.0.1:0")
	t.Cleanup(func() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }) // go run and the server
	var match []string
	for end := time.Now().Add(compileTime); match == nil; time.Sleep(20 * time.Millisecond) {
		match = regexp.MustCompile(`The server runs at (\S+) until`).FindStringSubmatch(p.out.String())
		require.True(t, time.Now().Before(end), p.err.String())
	}
	install := shell(commands[1])
	select {
	case <-install.done:
	case <-time.After(compileTime):
		t.Fatal("go install does not end")
	}
	require.Equal(t, 0, install.wait(), install.err.String())
	run := shell(commands[2], "REDIS_URL="+match[1])
	require.Equal(t, 0, run.wait(), run.err.String())
	require.Equal(t, "only one host prints this\n", run.out.String())
}
