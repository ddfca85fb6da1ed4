//go:build unix

package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
)

// span is text of one style.
type span struct {
	text  string
	class string // of the style sheet below
}

// shot is a screen from a time on. The last one has no lines, and says when the recording ends.
type shot struct {
	at    time.Duration
	lines [][]span
}

// spansOf reads the screen of a terminal.
func spansOf(screen *vt.Emulator) (lines [][]span) {
	for y := range screen.Height() {
		var line []span
		for x := range screen.Width() {
			text, class := " ", ""
			if cell := screen.CellAt(x, y); cell != nil {
				if cell.Width == 0 {
					continue // the second half of a wide character
				}
				text, class = cell.Content, classOf(&cell.Style)
			}
			if n := len(line); n > 0 && line[n-1].class == class {
				line[n-1].text += text
			} else {
				line = append(line, span{text, class})
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func classOf(s *uv.Style) string {
	colour := -1
	switch c := s.Fg.(type) {
	case ansi.BasicColor:
		colour = int(c)
	case ansi.IndexedColor:
		colour = int(c)
	}
	const red, yellow = 1, 3
	switch {
	case s.Attrs&uv.AttrReverse != 0:
		return "r"
	case colour == red:
		return "e"
	case colour == yellow:
		return "y"
	case s.Underline != 0:
		return "h"
	case s.Attrs&uv.AttrBold != 0:
		return "b"
	case s.Attrs&uv.AttrFaint != 0:
		return "f"
	}
	return ""
}

func plain(lines [][]span) string {
	var b strings.Builder
	for _, line := range lines {
		for _, s := range line {
			b.WriteString(s.text)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

const (
	margin     = 16 // pixels
	lineHeight = 19
	charWidth  = 7.9 // each line is stretched to it, whatever the font
	barHeight  = 28  // of the window
)

const style = `
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace;fill:#d4d8de;white-space:pre}
.r{fill:#161b22}
.b,.h{font-weight:600;fill:#fff}
.h{text-decoration:underline}
.f{fill:#8b949e}
.e{font-weight:600;fill:#ff8b85}
.y{fill:#e2b556}
.m{fill:#8b949e;font-family:system-ui,sans-serif}
@media (prefers-reduced-motion:reduce){.a{animation:none!important}}
`

// shown is a line of the screen while it does not change.
type shown struct {
	from, to time.Duration
	line     []span
}

// render draws each line once for the time that it stays. The first screen is also what readers see
// who want no motion.
func render(title string, shots []shot) []byte {
	total := shots[len(shots)-1].at
	shots = shots[:len(shots)-1]
	var body, css bytes.Buffer
	names := map[[2]time.Duration]string{}
	for y := range shots[0].lines {
		for _, s := range stays(shots, y, total) {
			if strings.TrimSpace(plain([][]span{s.line})) == "" {
				continue
			}
			attributes := ""
			if s.from > 0 || s.to < total {
				at := [2]time.Duration{s.from, s.to}
				if names[at] == "" {
					names[at] = fmt.Sprintf("k%d", len(names))
					css.WriteString(keyframes(names[at], s.from, s.to, total))
				}
				opacity := 0
				if s.from == 0 {
					opacity = 1
				}
				attributes = fmt.Sprintf(` class="a" opacity="%d" style="animation:%s %.1fs infinite step-end"`, opacity, names[at], total.Seconds())
			}
			fmt.Fprintf(&body, "<g%s>%s</g>\n", attributes, draw(s.line, y))
		}
	}
	w, h := 2*margin+int(columns(shots[0].lines[0])*charWidth), barHeight+margin+len(shots[0].lines)*lineHeight
	var all bytes.Buffer
	fmt.Fprintf(&all, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" xml:space="preserve">`+"\n", w, h, w, h)
	fmt.Fprintf(&all, "<title>%s</title>\n<style>%s%s</style>\n", escape(title), style, css.Bytes())
	fmt.Fprintf(&all, `<rect width="100%%" height="100%%" rx="8" fill="#161b22"/>`+"\n")
	for i, colour := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		fmt.Fprintf(&all, `<circle cx="%d" cy="14" r="5" fill="%s"/>`+"\n", margin+5+i*16, colour)
	}
	fmt.Fprintf(&all, `<text class="m" x="%d" y="18" text-anchor="middle">%s</text>`+"\n", w/2, escape(title))
	all.Write(body.Bytes())
	all.WriteString("</svg>\n")
	return all.Bytes()
}

// stays returns how long each content of a line of the screen stays.
func stays(shots []shot, y int, total time.Duration) (all []shown) {
	for _, s := range shots {
		from := s.at
		if len(all) == 0 {
			from = 0
		}
		if n := len(all); n > 0 && plain([][]span{all[n-1].line}) == plain(s.lines[y:y+1]) {
			continue
		} else if n > 0 {
			all[n-1].to = s.at
		}
		all = append(all, shown{from, total, s.lines[y]})
	}
	return all
}

func keyframes(name string, from, to, total time.Duration) string {
	percent := func(d time.Duration) string { return fmt.Sprintf("%.1f%%", 100*float64(d)/float64(total)) }
	frames := ""
	if from > 0 {
		frames += "0%{opacity:0}"
	}
	frames += percent(from) + "{opacity:1}"
	if to < total {
		frames += percent(to) + ",100%{opacity:0}"
	}
	return fmt.Sprintf("@keyframes %s{%s}\n", name, frames)
}

// draw returns the elements of a line. Reversed text has a bright box.
func draw(line []span, y int) string {
	var boxes, text strings.Builder
	at := 0.0
	top := barHeight + y*lineHeight
	last := 0.0
	for _, s := range line {
		wide := columns([]span{s})
		if s.class == "r" {
			fmt.Fprintf(&boxes, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#d4d8de"/>`, margin+at*charWidth, top, wide*charWidth, lineHeight)
		}
		content := escape(s.text)
		if s.class != "" {
			content = fmt.Sprintf(`<tspan class="%s">%s</tspan>`, s.class, content)
		}
		text.WriteString(content)
		at += wide
		last = at
	}
	return fmt.Sprintf(`%s<text x="%d" y="%d" textLength="%.0f" lengthAdjust="spacingAndGlyphs">%s</text>`, boxes.String(), margin, top+14, last*charWidth, text.String())
}

func columns(line []span) (n float64) {
	for _, s := range line {
		n += float64(utf8.RuneCountInString(s.text)) // the scene has no wide characters
	}
	return n
}

func escape(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // a buffer takes everything
	return b.String()
}
