package redistest

import (
	"bufio"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFramesAreReadWholeAndToTheByte(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]any{
		"+OK\r\n":                       "OK",
		"-ERR no\r\n":                   ReplyError("ERR no"),
		":-7\r\n":                       int64(-7),
		"$5\r\na\r\nbc\r\n":             "a\r\nbc",
		"$0\r\n\r\n":                    "",
		"$-1\r\n":                       nil,
		"*-1\r\n":                       nil,
		"*0\r\n":                        []any{},
		"*2\r\n$1\r\na\r\n*1\r\n:1\r\n": []any{"a", []any{int64(1)}},
		"_\r\n":                         nil,
		"#t\r\n":                        true,
		"#f\r\n":                        false,
		",1.5\r\n":                      "1.5",
		"(123456789012345678901\r\n":    "123456789012345678901",
		"=7\r\ntxt:abc\r\n":             "abc",
		"!6\r\nERR no\r\n":              ReplyError("ERR no"),
		"%1\r\n+k\r\n:1\r\n":            []any{"k", int64(1)},
		"~1\r\n+k\r\n":                  []any{"k"},
		">2\r\n+message\r\n+c\r\n":      []any{"message", "c"},
		"|1\r\n+ttl\r\n:3\r\n*1\r\n|1\r\n+a\r\n:1\r\n+b\r\n": []any{"b"},
	} {
		f, err := readFrame(bufio.NewReader(strings.NewReader(raw + "+next\r\n")))
		require.NoError(t, err, "%q", raw)
		require.Equal(t, want, f.value, "%q", raw)
		require.Equal(t, raw, string(f.raw))
	}
}

func TestTornAndForeignBytesAreErrors(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"", "\r\n", "$5\r\nabc", "*2\r\n+a\r\n", "$x\r\n", "?\r\n", ":x\r\n", "@1\r\n"} {
		_, err := readFrame(bufio.NewReader(strings.NewReader(raw)))
		require.Error(t, err, "%q", raw)
	}
	for _, raw := range []string{"PING\r\n", "*0\r\n", "*1\r\n:1\r\n", "+PING\r\n"} {
		_, err := readCommand(bufio.NewReader(strings.NewReader(raw)))
		require.Error(t, err, "%q", raw)
	}
}

func TestCommandsAreReadOneByOneOutOfAPipeline(t *testing.T) {
	t.Parallel()
	r := bufio.NewReader(strings.NewReader("*2\r\n$3\r\nget\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n"))
	first, err := readCommand(r)
	require.NoError(t, err)
	require.Equal(t, []string{"get", "k"}, first.args)
	require.Equal(t, "GET", first.name())
	second, err := readCommand(r)
	require.NoError(t, err)
	require.Equal(t, ping, second)
}
