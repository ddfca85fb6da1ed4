// Cast runs a command, and writes an SVG that shows its output as a terminal did, line by line in
// real time. The picture has a dark background of its own, so it is readable on light and dark
// pages. Programs that do not animate SVGs, and readers who do not want motion, see all lines at
// once.
//
//	go run ./examples/internal/cast -o longjob.svg go run ./examples/longjob
package main

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	out := flag.String("o", "cast.svg", "the file to write")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatal("usage: cast [-o file] command...")
	}
	lines, err := record(flag.Args())
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*out, render("$ "+strings.Join(flag.Args(), " "), lines), 0o644); err != nil {
		log.Fatal(err)
	}
}

// line is a line of output, and when it came.
type line struct {
	at   time.Duration
	text string
}

// record runs a command, and prints its output as it comes. Time starts with the first line,
// because go run compiles before that.
func record(command []string) (lines []line, err error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var first time.Time
	for scan := bufio.NewScanner(stdout); scan.Scan(); {
		if first.IsZero() {
			first = time.Now()
		}
		fmt.Println(scan.Text())
		lines = append(lines, line{time.Since(first), scan.Text()})
	}
	return lines, cmd.Wait()
}

const (
	margin     = 16 // pixels
	lineHeight = 19
	charWidth  = 7.9                    // of the font below, about
	prompt     = 800 * time.Millisecond // from the command to the first line
	rest       = 5 * time.Second        // from the last line to the next round
)

// style has the colours of the text. Each name of a process has a colour, in the order in which the
// names come.
const style = `
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;fill:#d4d8de;white-space:pre}
.prompt{fill:#8b949e}
.killed{fill:#ff8b85}
.name0{fill:#79c0ff}
.name1{fill:#7ee787}
.name2{fill:#e2b556}
.name3{fill:#d2a8ff}
@media (prefers-reduced-motion:reduce){text{animation:none!important}}
`

// stamped is a line of the examples: a time, a name and the rest.
var stamped = regexp.MustCompile(`^( *[\d.]+s  )(\S+)(.*)$`)

func render(command string, lines []line) []byte {
	longest, total := len(command), rest
	if n := len(lines); n > 0 {
		total += prompt + lines[n-1].at
	}
	for _, l := range lines {
		longest = max(longest, len(l.text))
	}
	width, height := 2*margin+int(float64(longest)*charWidth), 2*margin+(len(lines)+1)*lineHeight

	var svg, css bytes.Buffer
	classes := map[string]string{}
	for i, l := range lines {
		at := 100 * float64(prompt+l.at) / float64(total)
		fmt.Fprintf(&css, "@keyframes l%d{0%%,%.2f%%{opacity:0}%.2f%%,100%%{opacity:1}}\n", i, at, at+0.01)
		fmt.Fprintf(&svg, `<text x="%d" y="%d" style="animation:l%d %.2fs infinite">%s</text>`+"\n",
			margin, y(i+1), i, total.Seconds(), spans(l.text, classes))
	}
	var all bytes.Buffer
	fmt.Fprintf(&all, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" xml:space="preserve">`+"\n", width, height, width, height)
	fmt.Fprintf(&all, "<title>%s</title>\n<style>%s%s</style>\n", escape(command), style, css.Bytes())
	fmt.Fprintf(&all, `<rect width="100%%" height="100%%" rx="8" fill="#161b22"/>`+"\n")
	fmt.Fprintf(&all, `<text class="prompt" x="%d" y="%d">%s</text>`+"\n", margin, y(0), escape(command))
	all.Write(svg.Bytes())
	all.WriteString("</svg>\n")
	return all.Bytes()
}

func y(line int) int { return margin + line*lineHeight + 13 }

// spans colours the name in a line, and all of a line about a kill.
func spans(text string, classes map[string]string) string {
	parts := stamped.FindStringSubmatch(text)
	if parts == nil {
		return escape(text)
	}
	name := parts[2]
	if classes[name] == "" {
		classes[name] = fmt.Sprintf("name%d", len(classes)%4)
	}
	after := escape(parts[3])
	if strings.Contains(after, "killed") {
		after = `<tspan class="killed">` + after + `</tspan>`
	}
	return fmt.Sprintf(`%s<tspan class="%s">%s</tspan>%s`, escape(parts[1]), classes[name], escape(name), after)
}

func escape(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // a buffer takes everything
	return b.String()
}
