// Server: an embedded server for the other examples and for docs/getting-started.md, on a machine
// that has only Go. It keeps nothing on disk. It is not for production.
//
//	go run ./examples/server                  # listens on localhost:6379
//	go run ./examples/server localhost:7000
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/redlatch/redlatch/examples/internal/server"
)

func main() {
	log.SetFlags(0)
	addr := "localhost:6379"
	if len(os.Args) > 1 {
		addr = os.Args[1]
	}
	url, stop, err := server.Listen(addr)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	fmt.Printf("The server runs at %s until you press Ctrl-C.\n", url)
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	<-ctx.Done()
}
