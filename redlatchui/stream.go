package redlatchui

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	heartbeat    = 15 * time.Second // a comment, so that proxies keep the connection
	again        = 5 * time.Second  // a page whose reading takes long shows how old it is
	writeTimeout = 10 * time.Second // a viewer that reads nothing for so long is gone
)

func (h *Handler) listEvents(w http.ResponseWriter, r *http.Request) {
	q := parseQuery(r.URL.Query())
	v := &viewer{news: make(chan struct{}, 1)}
	h.stream(w, r, v, func() []byte {
		now := h.poller.current()
		if now.listed.IsZero() && now.problem() == nil {
			return nil // the first reading has not come
		}
		page := h.newListPage(now, q)
		h.poller.show(v, page.names)
		return h.pages.render("list-live", page)
	})
}

func (h *Handler) lockEvents(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	if name == "" {
		h.say(w, r, http.StatusBadRequest, "The address has no name of a lock.")
		return
	}
	v := &viewer{news: make(chan struct{}, 1), lock: name}
	_, allowed := h.allows(r)
	h.stream(w, r, v, func() []byte {
		l, grants, since := h.poller.lockOf(name)
		if l == nil {
			return nil
		}
		return h.pages.render("lock-live", h.newLockPage(name, l, grants, since, allowed))
	})
}

// stream sends what render returns at each reading, until the viewer leaves or the handler is
// closed.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, v *viewer, render func() []byte) {
	if !h.beginStream() {
		h.say(w, r, http.StatusServiceUnavailable, "The page does not update itself any more, because its server ends.")
		return
	}
	defer h.streams.Done()
	if !h.poller.join(v, h.viewers) {
		h.refuse(w, r, http.StatusServiceUnavailable, "Too many live pages are open.")
		return
	}
	defer h.poller.leave(v)
	s := &events{w: w, control: http.NewResponseController(w)}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // nginx would wait for more
	ctx, cancel := context.WithCancel(r.Context())
	var aborting sync.WaitGroup
	aborting.Go(func() { // a write that blocks must not delay Close
		select {
		case <-h.closed:
			s.abort()
		case <-ctx.Done():
		}
	})
	defer aborting.Wait() // the writer is not usable afterwards
	defer cancel()
	h.feed(ctx, s, v, render)
}

func (h *Handler) feed(ctx context.Context, s *events, v *viewer, render func() []byte) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	late := time.NewTicker(again)
	defer late.Stop()
	var last []byte
	send := func() error {
		page := render()
		if page == nil || bytes.Equal(page, last) {
			return nil
		}
		last = page
		return s.send("page", page)
	}
	err := s.comment("live")
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case <-h.closed:
			return
		case <-v.news:
			late.Reset(again)
			err = send()
		case <-late.C:
			err = send()
		case <-beat.C:
			err = s.comment("heartbeat")
		}
	}
}

// events writes server-sent events.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController

	mu      sync.Mutex
	aborted bool
}

// abort ends a write that is in progress, and all later ones.
func (s *events) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aborted = true
	_ = s.control.SetWriteDeadline(time.Now())
}

// extend gives the next write its time, unless abort has been called.
func (s *events) extend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.aborted {
		_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has one
	}
}

func (s *events) comment(text string) error { return s.write([]byte(": " + text + "\n\n")) }

// send sends data, each line of which is a line of the event.
func (s *events) send(event string, data []byte) error {
	var b bytes.Buffer
	b.WriteString("event: " + event + "\n")
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			b.WriteString("data: ")
			b.Write(line)
			b.WriteByte('\n')
		}
	}
	b.WriteByte('\n')
	return s.write(b.Bytes())
}

func (s *events) write(data []byte) error {
	s.extend()
	if _, err := s.w.Write(data); err != nil {
		return err
	}
	return s.control.Flush()
}
