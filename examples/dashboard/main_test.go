package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The demo shows a queue, and ends with its context.
func TestTheDemoShowsAQueue(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1") // the demo uses no other server than its own
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, listener) }()
	link := "http://" + listener.Addr().String() + "/?show=waiting"
	for end := time.Now().Add(time.Minute); !strings.Contains(get(t, link), "reports:monthly"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no queue; the page has: ", get(t, link))
		}
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the demo does not end")
	}
}

func TestTheDemoListensOnALoopbackAddressOnly(t *testing.T) {
	if _, err := listenTo("0.0.0.0:0"); err == nil {
		t.Fatal("everybody could release locks")
	}
}

func get(t *testing.T, link string) string {
	t.Helper()
	r, err := http.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
