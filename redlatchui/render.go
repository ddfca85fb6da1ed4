package redlatchui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"time"

	"github.com/redlatch/redlatch/internal/display"
)

//go:embed templates static
var files embed.FS

// pages has the templates and the static files.
type pages struct {
	templates *template.Template
	static    map[string][]byte
}

// head is what every page has.
type head struct {
	Title, Base, Events, Version string
	Actions                      bool // there are actions, for some people
}

// status says how old a page is, and why.
type status struct {
	ReadAt, Ago string // the last good reading; empty: there was none
	Problem     string // why the last attempt failed
	Unreadable  string
}

type messagePage struct {
	head
	Text string
}

func newStatus(err error, at time.Time) (s status) {
	if !at.IsZero() {
		s.ReadAt, s.Ago = clock(at), display.AgeSince(at, time.Now())
	}
	if err != nil {
		s.Problem = display.Safe(err.Error())
	}
	return s
}

// clock returns the time of day. Logs of servers in several places have UTC too.
func clock(t time.Time) string {
	if t = t.UTC(); time.Since(t).Abs() > 20*time.Hour {
		return t.Format("2006-01-02 15:04:05 UTC")
	}
	return t.Format("15:04:05 UTC")
}

func loadPages(base string) *pages {
	p := &pages{static: map[string][]byte{}}
	sum := sha256.New()
	entries, _ := fs.ReadDir(files, "static")
	for _, e := range entries {
		data, _ := files.ReadFile("static/" + e.Name())
		p.static[e.Name()] = data
		sum.Write(data)
	}
	version := hex.EncodeToString(sum.Sum(nil))[:12]
	p.templates = template.Must(template.New("").Funcs(template.FuncMap{
		"base": func() string { return base }, "version": func() string { return version },
	}).ParseFS(files, "templates/*.html"))
	return p
}

func (h *Handler) head(title, events string) head {
	return head{Title: title, Events: events, Actions: h.actions != nil}
}

// render executes a template. Its failure would be a bug of this package.
func (p *pages) render(name string, data any) []byte {
	var b bytes.Buffer
	if err := p.templates.ExecuteTemplate(&b, name, data); err != nil {
		panic(fmt.Sprintf("redlatch: template %s: %v", name, err))
	}
	return b.Bytes()
}

func (p *pages) write(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	page := p.render(name, data)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(page)
	}
}

// file serves a static file. Its address contains the version of all files, so it never changes.
func (p *pages) file(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	data, ok := p.static[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
}

// bar shows units in use of a limit. CSP allows no widths in style attributes, so it is a picture.
type bar struct {
	Label    string
	IsFull   bool
	Segments []segment
}

func newBar(units, whole int) *bar {
	b := &bar{Label: fmt.Sprintf("%d of %d", units, whole), IsFull: whole > 0 && units >= whole}
	b.add(0, units, max(whole, units, 1))
	return b
}

// add appends a part that begins at a unit. Between two parts is a gap.
func (b *bar) add(from, units, whole int) {
	const most = 100
	if units <= 0 || len(b.Segments) >= most {
		return
	}
	x, width := float64(from)/float64(whole)*stripWidth, float64(units)/float64(whole)*stripWidth
	b.Segments = append(b.Segments, segment{X: x, Width: max(width-4, 2)})
}
