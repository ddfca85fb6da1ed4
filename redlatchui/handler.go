package redlatchui

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/catalog"
	"github.com/redlatch/redlatch/lockerr"
)

// Handler serves the page. New makes it. Its methods may be called concurrently.
type Handler struct {
	config
	rdb    redis.UniversalClient
	names  *catalog.Catalog
	poller *poller
	pages  *pages
	serve  http.Handler

	mu      sync.Mutex
	closed  chan struct{}
	streams sync.WaitGroup // live pages
}

// New makes the page of a client. rdb is the go-redis client that locks was made with. The page
// shows the names that begin with the prefix of locks, without that prefix. New sends nothing to
// Redis. Call Close when the server ends.
//
// The error is a *lockerr.ConfigError that names the argument or the option which is not usable.
func New(rdb redis.UniversalClient, locks *redlatch.Client, options ...Option) (*Handler, error) {
	if rdb == nil {
		return nil, &lockerr.ConfigError{Setting: "go-redis client", Reason: "must not be nil"}
	}
	if locks == nil {
		return nil, &lockerr.ConfigError{Setting: "client", Reason: "must not be nil; redlatch.New makes it"}
	}
	h := &Handler{config: config{logger: slog.Default(), viewers: defaultViewers}, rdb: rdb, closed: make(chan struct{})}
	for _, o := range options {
		if o == nil {
			return nil, &lockerr.ConfigError{Setting: "option", Value: nil, Reason: "must not be nil"}
		}
		if err := o.apply(&h.config); err != nil {
			return nil, err
		}
	}
	h.names = catalog.New(rdb, locks)
	h.poller = newPoller(h.names, rdb, h.hashes)
	h.pages = loadPages(h.prefix)
	h.serve = h.routes()
	return h, nil
}

func (h *Handler) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.listPage)
	mux.HandleFunc("GET /lock", h.lockPage)
	mux.HandleFunc("GET /events", h.listEvents)
	mux.HandleFunc("GET /lock/events", h.lockEvents)
	mux.HandleFunc("GET /static/{file}", h.pages.file)
	mux.HandleFunc("GET /actions/{action}", h.confirmPage)
	mux.HandleFunc("POST /actions/{action}", h.act)
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.refuse(w, r, http.StatusForbidden, "The request came from another site, so it was refused.")
	}))
	return http.StripPrefix(h.prefix, sameOrigin.Handler(mux))
}

// ServeHTTP serves the page, its live updates and its actions.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	for name, value := range securityHeaders {
		header.Set(name, value)
	}
	if h.loopback && !isLoopback(r.Host) {
		h.refuse(w, r, http.StatusMisdirectedRequest, "This server answers only as localhost, or as a loopback address.")
		return
	}
	if h.prefix != "" && r.URL.Path == h.prefix {
		http.Redirect(w, r, h.prefix+"/", http.StatusMovedPermanently)
		return
	}
	h.serve.ServeHTTP(w, r)
}

// securityHeaders keep other sites out of the page, and scripts that are not ours.
var securityHeaders = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "same-origin", // with no-referrer, a form would send no origin
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cache-Control":                "no-store",
}

func isLoopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = strings.Trim(hostPort, "[]")
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// refuse logs a request, and answers with a page that says why.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	h.logger.WarnContext(r.Context(), "redlatch: the page refused a request", "status", status, "reason", why,
		"method", r.Method, "path", r.URL.Path, "remote", r.RemoteAddr)
	h.say(w, r, status, why)
}

// say answers with a page that has one sentence.
func (h *Handler) say(w http.ResponseWriter, r *http.Request, status int, text string) {
	h.pages.write(w, r, status, "message", messagePage{head: h.head(text, ""), Text: text})
}

// Close ends all live pages and the goroutine that reads, and returns when they have ended, or when
// ctx ends. Pages still load afterwards, and do not update themselves. http.Server.Shutdown waits
// for live pages, so call Close before it, for instance with RegisterOnShutdown.
func (h *Handler) Close(ctx context.Context) error {
	h.mu.Lock()
	if !h.isClosed() {
		close(h.closed)
	}
	h.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.poller.close()
		h.streams.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *Handler) isClosed() bool {
	select {
	case <-h.closed:
		return true
	default:
		return false
	}
}

// beginStream counts a live page, unless the handler is closed.
func (h *Handler) beginStream() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isClosed() {
		return false
	}
	h.streams.Add(1)
	return true
}
