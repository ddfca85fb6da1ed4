package main

import (
	"encoding/xml"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// text returns the lines that a picture shows, and fails if it is not XML.
func text(t *testing.T, svg []byte) (lines []string) {
	t.Helper()
	inText := false
	for tokens := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		token, err := tokens.Token()
		if errors.Is(err, io.EOF) {
			return lines
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "text" {
				inText, lines = true, append(lines, "")
			}
		case xml.EndElement:
			inText = inText && token.Name.Local != "text"
		case xml.CharData:
			if inText {
				lines[len(lines)-1] += string(token)
			}
		}
	}
}

func TestThePictureShowsEachLine(t *testing.T) {
	svg := render("$ a & b", []line{
		{0, "begins <now>"},
		{time.Second, " 1.00s  Ann  is killed with -9"},
		{2 * time.Second, " 2.00s  Bob  is done"},
	})
	require.Equal(t, []string{"$ a & b", "begins <now>", " 1.00s  Ann  is killed with -9", " 2.00s  Bob  is done"}, text(t, svg))
	require.Contains(t, string(svg), `<tspan class="name0">Ann</tspan><tspan class="killed">`)
	require.Contains(t, string(svg), `<tspan class="name1">Bob</tspan>`)
}

// The rounds last as long as the output did, and a rest.
func TestThePictureTakesItsTime(t *testing.T) {
	svg := render("$ a", []line{{0, "first"}, {4200 * time.Millisecond, "last"}})
	require.Contains(t, string(svg), "animation:l1 10.00s infinite")
	require.Contains(t, string(svg), "@keyframes l0{0%,8.00%{opacity:0}8.01%,100%{opacity:1}}")
	require.Contains(t, string(svg), "@keyframes l1{0%,50.00%{opacity:0}50.01%,100%{opacity:1}}")
}

func TestTheRecordHasTheOutput(t *testing.T) {
	lines, err := record([]string{"go", "env", "GOOS", "GOARCH"})
	require.NoError(t, err)
	require.Len(t, lines, 2)
	require.Equal(t, runtime.GOOS, lines[0].text)
	_, err = record([]string{"go", "no-such-command"})
	require.Error(t, err)
}
