package oneline_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/oneline"
)

func TestErrorsAreOnOneLine(t *testing.T) {
	require.NoError(t, oneline.Errors())
	require.NoError(t, oneline.Errors(nil, nil))
	require.Equal(t, io.EOF, oneline.Errors(nil, io.EOF))
	both := oneline.Errors(io.EOF, nil, io.ErrNoProgress)
	require.EqualError(t, both, "EOF; multiple Read calls return no data or error")
	require.ErrorIs(t, both, io.EOF)
	require.ErrorIs(t, both, io.ErrNoProgress)
	require.ErrorIs(t, fmt.Errorf("wrapped: %w", both), both, "it is comparable")
}

// The text shows each reason once, in the order in which they came.
func TestReasonsAreNotRepeated(t *testing.T) {
	dial, late := errors.New("dial: refused"), errors.New("no connection in time")
	err := oneline.Errors(oneline.Errors(dial, late), oneline.Errors(io.EOF, late), dial)
	require.EqualError(t, err, "dial: refused; no connection in time; EOF")
	require.ErrorIs(t, err, io.EOF)
}

func TestForeignTextIsOneLine(t *testing.T) {
	for text, line := range map[string]string{
		"": "", `plain "quoted" \ text, 日本語 🔒 �`: `plain "quoted" \ text, 日本語 🔒 ` + "\uFFFD",
		"a\nb\r\n\tc": `a\nb\r\n\tc`, "\x00\x1b[2J\x7f": `\x00\x1b[2J\x7f`, "no utf-8 \xff": `no utf-8 \xff`, "next\u0085\u2028\u202e": `next\u0085\u2028\u202e`,
	} {
		require.Equal(t, line, oneline.OneLine(text))
	}
	require.EqualError(t, oneline.Errors(errors.New("a\nb"), errors.Join(io.EOF, io.ErrNoProgress)),
		`a\nb; EOF\nmultiple Read calls return no data or error`)
}

func TestVeryManyErrorsAreCountedAndAllThere(t *testing.T) {
	var all []error
	for i := range 20 {
		all = append(all, fmt.Errorf("e%d", i))
	}
	last := all[19]
	require.EqualError(t, oneline.Errors(all...), "e0; e1; e2; e3; e4; and 15 more")
	require.True(t, errors.Is(oneline.Errors(all...), last))
	require.EqualError(t, oneline.Errors(all[:6]...), "e0; e1; e2; e3; e4; e5")
	require.EqualError(t, oneline.Errors(all[:7]...), "e0; e1; e2; e3; e4; and 2 more")
}
