package redlatchui_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchui"
)

// requireLogin stands for the login of the program.
func requireLogin(next http.Handler) http.Handler { return next }

// isOperator stands for what the program knows of its users.
func isOperator(*http.Request) (who string, allowed bool) { return "ann", true }

func Example() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	losses := redlatchui.NewLosses()
	locks, err := redlatch.New(rdb, redlatch.WithObserver(losses))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	page, err := redlatchui.New(rdb, locks,
		redlatchui.WithPrefix("/locks"),
		redlatchui.WithLosses(losses),
		redlatchui.WithActions(isOperator))
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/locks/", requireLogin(page))
	web := &http.Server{Handler: mux}
	web.RegisterOnShutdown(func() { _ = page.Close(context.Background()) })

	hold, err := locks.Mutex("orders:42").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	w := httptest.NewRecorder()
	web.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/locks/", nil))
	body, _ := io.ReadAll(w.Body)
	fmt.Println(w.Code, strings.Contains(string(body), "orders:42"))
	if err := hold.Unlock(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: 200 true
}
