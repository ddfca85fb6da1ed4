package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/redlatchui"
)

type uiFlags struct {
	listen                         string
	actions, remoteActions, hashes bool
}

const uiLong = `Serve a page that shows locks and semaphores, and updates itself, until ^C.

It listens on 127.0.0.1 by default, so only this host can reach it. Without --actions nobody can change anything.
With --actions, the URL that it prints has a key. Only a browser that has opened this URL can change something.
The page says who has which lock to everybody who can reach it. The traffic is not encrypted.

Exit code 1: it cannot listen on the address.`

func newUICommand(a *app) *cobra.Command {
	f := &uiFlags{}
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a page that shows locks in a browser",
		Long:  uiLong,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.ui(cmd.Context(), f) },
	}
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8420", "`ADDRESS` of the page")
	cmd.Flags().BoolVar(&f.actions, "actions", false, "let people release locks, remove waiters and resize semaphores")
	cmd.Flags().BoolVar(&f.remoteActions, "remote-actions", false, "with --actions, allow an address that other hosts can reach")
	cmd.Flags().BoolVar(&f.hashes, "hashes", false, "also look at every hash of the database")
	return cmd
}

func (a *app) ui(ctx context.Context, f *uiFlags) error {
	address, err := f.address()
	if err != nil {
		return err
	}
	listener, err := net.ListenTCP("tcp", address)
	if err != nil {
		return &exitError{exitNo, fmt.Errorf("%w; --listen takes another address", err)} // 69 would mean Redis
	}
	defer listener.Close()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := a.connect(ctx, 0)
	if err != nil {
		return err
	}
	defer c.close()
	options := []redlatchui.Option{redlatchui.WithLogger(newUILogger(a.errOut))}
	if address.IP.IsLoopback() {
		options = append(options, redlatchui.WithLoopbackOnly())
	}
	if f.hashes {
		options = append(options, redlatchui.WithHashes())
	}
	where := url.URL{Scheme: "http", Host: shownAddress(listener.Addr().(*net.TCPAddr)), Path: "/"}
	var key *accessKey
	if f.actions {
		key = newAccessKey(listener.Addr().(*net.TCPAddr).Port)
		options = append(options, redlatchui.WithActions(key.allows))
		where.RawQuery = url.Values{keyParameter: {key.secret}}.Encode()
	}
	page, err := redlatchui.New(c.rdb, c.locks, options...)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "The page is at %s (^C ends it)\n", where.String())
	return serve(ctx, listener, key.behind(page), page, a.limits.release)
}

// address checks the flags before anything listens.
func (f *uiFlags) address() (*net.TCPAddr, error) {
	address, err := net.ResolveTCPAddr("tcp", f.listen)
	if err != nil {
		return nil, usageErrorf("--listen must be an address such as 127.0.0.1:8420: %w", err)
	}
	isLoopback := address.IP != nil && address.IP.IsLoopback()
	switch {
	case f.remoteActions && !f.actions:
		return nil, usageErrorf("--remote-actions is for --actions")
	case f.actions && !isLoopback && !f.remoteActions:
		return nil, usageErrorf("with --actions, %s would let other hosts change locks, without encryption; use a loopback address and ssh -L, or pass --remote-actions too", f.listen)
	}
	return address, nil
}

// shownAddress is what a browser on this host can open.
func shownAddress(address *net.TCPAddr) string {
	if address.IP.IsUnspecified() {
		return net.JoinHostPort("localhost", strconv.Itoa(address.Port))
	}
	return address.String()
}

// serve returns when ctx has ended and the viewers are gone.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, page *redlatchui.Handler, within time.Duration) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return &exitError{exitNo, err}
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err := page.Close(last) // Shutdown waits for live pages
	if errShutdown := server.Shutdown(last); errShutdown != nil {
		err = server.Close()
	}
	<-ended
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // a viewer does not read; nothing is lost
	}
	return err
}

// newUILogger writes who has changed what, with the time.
func newUILogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

const keyParameter = "key"

// accessKey says which browser may change something. Other users of this host can reach a loopback
// address too.
type accessKey struct {
	secret, cookie, who string
}

func newAccessKey(port int) *accessKey {
	who := "unknown user"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	return &accessKey{secret: rand.Text(), cookie: "redlatch-key-" + strconv.Itoa(port), who: who}
}

func (k *accessKey) isRight(text string) bool {
	return subtle.ConstantTimeCompare([]byte(text), []byte(k.secret)) == 1
}

func (k *accessKey) allows(r *http.Request) (who string, allowed bool) {
	c, err := r.Cookie(k.cookie)
	return k.who, err == nil && k.isRight(c.Value)
}

// behind gives a browser that opens the URL with the key a cookie, and takes the key out of its
// address.
func (k *accessKey) behind(page http.Handler) http.Handler {
	if k == nil {
		return page
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := r.URL.Query().Get(keyParameter)
		if given == "" || r.Method != http.MethodGet || !k.isRight(strings.TrimSpace(given)) {
			page.ServeHTTP(w, r)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: k.cookie, Value: k.secret, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		w.Header().Set("Referrer-Policy", "no-referrer")
		http.Redirect(w, r, "/", http.StatusSeeOther)
	})
}
