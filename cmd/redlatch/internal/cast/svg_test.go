//go:build unix

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/stretchr/testify/require"
)

// requireXML fails if a picture is not XML.
func requireXML(t *testing.T, svg []byte) {
	t.Helper()
	for tokens := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		_, err := tokens.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

func TestTheScreenIsReadWithItsStyles(t *testing.T) {
	screen := vt.NewEmulator(12, 2)
	_, err := screen.Write([]byte("\x1b[7mab\x1b[m c\r\n\x1b[33my\x1b[m\x1b[1;31me\x1b[m\x1b[1;4mh\x1b[m\x1b[1mb\x1b[m\x1b[2mf\x1b[m"))
	require.NoError(t, err)
	lines := spansOf(screen)
	require.Equal(t, "ab c        \nyehbf       \n", plain(lines))
	require.Equal(t, []span{{"ab", "r"}, {" c        ", ""}}, lines[0])
	require.Equal(t, []span{{"y", "y"}, {"e", "e"}, {"h", "h"}, {"b", "b"}, {"f", "f"}, {"       ", ""}}, lines[1])
}

// A line is drawn once for the time that it stays. One that never changes does not move.
func TestEachLineIsDrawnForItsTime(t *testing.T) {
	line := func(text string) []span { return []span{{text, ""}} }
	svg := render("a & b", []shot{
		{0, [][]span{line("stays"), line("first")}}, {time.Second, [][]span{line("stays"), line("first")}}, {2 * time.Second, [][]span{line("stays"), line("<second>")}}, {at: 4 * time.Second},
	})
	requireXML(t, svg)
	text := string(svg)
	require.Equal(t, 1, strings.Count(text, ">stays<"))
	require.Equal(t, 1, strings.Count(text, ">first<"))
	require.Regexp(t, `<g><text [^>]*>stays<`, text)
	require.Regexp(t, `<g class="a" opacity="1" style="animation:k0 4.0s infinite step-end"><text [^>]*>first<`, text)
	require.Regexp(t, `<g class="a" opacity="0" style="animation:k1 4.0s infinite step-end"><text [^>]*>&lt;second&gt;<`, text)
	require.Contains(t, text, "@keyframes k0{0.0%{opacity:1}50.0%,100%{opacity:0}}")
	require.Contains(t, text, "@keyframes k1{0%{opacity:0}50.0%{opacity:1}}")
}

func TestThePictureOfTheDocumentation(t *testing.T) {
	svg, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "images", "top.svg"))
	require.NoError(t, err)
	requireXML(t, svg)
	require.Less(t, len(svg), 100_000, "a page must load fast")
	for _, text := range []string{"by waiters", "by oldest", "orders:42", "queue:       3 wait", "yes: it renewed its lease"} {
		require.Contains(t, string(svg), text, "the recording is old: run make cast")
	}
}
