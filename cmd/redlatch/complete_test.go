package main

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// completions returns what a shell offers after the tab key, without descriptions, and the number
// that tells the shell what to do.
func completions(t *testing.T, env []string, args ...string) (words []string, directive string) {
	t.Helper()
	got := runIn(t, env, append([]string{"__complete"}, args...)...)
	require.Equal(t, 0, got.code, got.err)
	for line := range strings.Lines(got.out) {
		line = strings.TrimSuffix(line, "\n")
		if number, ok := strings.CutPrefix(line, ":"); ok {
			directive = number
			continue
		}
		word, _, _ := strings.Cut(line, "\t")
		words = append(words, word)
	}
	require.NotContains(t, got.err, "redlatch:", "a completion says nothing")
	return words, directive
}

const noFiles = "4"

func TestCompletionKnowsCommandsAndFlags(t *testing.T) {
	t.Parallel()
	nowhere := []string{"REDIS_URL=redis://127.0.0.1:1", completeEnv + "=1ms"}
	words, directive := completions(t, nowhere, "")
	require.Equal(t, noFiles, directive)
	for _, cmd := range newRoot(newTestApp()).Commands() {
		require.Contains(t, words, cmd.Name())
	}
	words, _ = completions(t, nowhere, "r")
	require.Equal(t, []string{"release", "remove-waiter", "resize", "run"}, words)
	words, _ = completions(t, nowhere, "run", "--")
	require.Subset(t, words, []string{"--wait", "--fair", "--redis", "--conflict-exit-code"})
	words, _ = completions(t, nowhere, "top", "--sort", "")
	require.Equal(t, []string{"waiters", "oldest", "held", "name"}, words)
	_, directive = completions(t, nowhere, "run", "x", "--", "")
	require.Equal(t, "0", directive, "the shell completes the command")
}

func TestCompletionAsksRedisForNames(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	env := s.env()
	odd, err := s.locks.Mutex("odd $(name)").Lock(t.Context())
	require.NoError(t, err)
	words, directive := completions(t, env, "show", "")
	require.Equal(t, []string{"door", "render"}, words, "names that a shell would change are left out")
	require.Equal(t, noFiles, directive)
	for _, cmd := range []string{"run", "wait", "release", "remove-waiter", "resize"} {
		words, _ = completions(t, env, cmd, "d")
		require.Equal(t, []string{"door"}, words, cmd)
	}
	words, _ = completions(t, env, "show", "d*")
	require.Empty(t, words, "a star is a star")
	words, _ = completions(t, env, "show", "door", "")
	require.Empty(t, words)
	words, _ = completions(t, env, "release", "door", "--expected", "")
	require.Equal(t, []string{s.hold.ID()}, words)
	words, _ = completions(t, env, "release", "render", "--expected", "")
	require.Equal(t, []string{s.permit.ID()}, words)
	words, _ = completions(t, env, "release", "--expected", "")
	require.Empty(t, words)
	waiters, _, err := s.locks.FairMutex("door").Queue(t.Context(), 0, 1)
	require.NoError(t, err)
	words, _ = completions(t, env, "remove-waiter", "door", "")
	require.Equal(t, []string{waiters[0].ID}, words)
	runtime.KeepAlive(odd)
}

func TestCompletionIsSilentWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "right")
	for _, env := range [][]string{
		{"REDIS_URL=redis://127.0.0.1:1", completeEnv + "=50ms"}, {"REDIS_URL=" + server.URL()}, {"REDIS_URL=nonsense"}, {"REDIS_URL=" + server.URL(), "REDIS_PASSWORD=wrong"},
	} {
		for _, args := range [][]string{{"show", "x"}, {"release", "x", "--expected", ""}} {
			words, directive := completions(t, env, args...)
			require.Empty(t, words)
			require.Equal(t, noFiles, directive)
		}
	}
}

func TestShellsTakeTheCompletion(t *testing.T) {
	t.Parallel()
	url := redistest.Shared(t).URL()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			got := run(t, url, "completion", shell)
			require.Equal(t, 0, got.code, got.err)
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skip("needs " + shell)
			}
			cmd := exec.Command(path, "-n", "/dev/stdin")
			cmd.Stdin = strings.NewReader(got.out)
			text, err := cmd.CombinedOutput()
			require.NoError(t, err, string(text))
			require.Empty(t, string(text))
		})
	}
}

// bash calls the function of the script as at the tab key.
func TestBashCompletesAName(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	bash, err := exec.LookPath("bash")
	require.NoError(t, err)
	const script = `redlatch() { "$program" "$@"; }
_get_comp_words_by_ref() { cur=${COMP_WORDS[COMP_CWORD]}; prev=${COMP_WORDS[COMP_CWORD-1]}; words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; }
source <(redlatch completion bash) 2>/dev/null
COMP_WORDS=(redlatch show d) COMP_CWORD=2 COMP_LINE="redlatch show d" COMP_POINT=15 COMP_TYPE=9
compopt() { :; }
__start_redlatch
echo "<${COMPREPLY[*]}>"`
	p := command(t, append(s.env(), "program="+runningTestBinary(t)))
	p.cmd.Path, p.cmd.Args = bash, []string{"bash", "--norc", "-c", script}
	p.start()
	require.Equal(t, 0, p.wait(), p.err.String())
	require.Equal(t, "<door>\n", p.out.String(), p.err.String())
}
