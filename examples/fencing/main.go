//go:build unix

// Fencing: a holder is paused for longer than its lease, and writes when it goes on. The lock
// cannot stop that write. The store rejects it by its fence.
//
//	cd examples/fencing && go run .
//
// Holders are processes that signals stop and continue, so this example runs on Unix. REDIS_URL
// makes it use a real server.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/server"
)

func main() {
	log.SetFlags(0)
	var err error
	if os.Getenv("FENCING_HOLDER") != "" {
		err = hold(os.Getenv("FENCING_URL"), os.Getenv("FENCING_DB"))
	} else {
		err = play()
	}
	if err != nil {
		log.Fatal(err)
	}
}

// hold is a holder that does not check whether it still has the lock. It locks, waits for a line on
// standard input, and writes.
func hold(url, path string) error {
	ctx := context.Background()
	rdb, err := server.Connect(url)
	if err != nil {
		return err
	}
	defer rdb.Close()
	locks, err := redlatch.New(rdb, redlatch.WithLease(time.Second))
	if err != nil {
		return err
	}
	defer locks.Close(ctx)
	db, err := openStore(path)
	if err != nil {
		return err
	}
	defer db.db.Close()

	h, err := locks.Mutex("fencing:report").Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("has the lock, fence %d\n", h.Fence())
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	if err := db.write(ctx, "written by process "+os.Getenv("FENCING_HOLDER"), h.Fence()); err != nil {
		fmt.Println("writes:", err)
	} else {
		fmt.Println("writes: accepted")
	}
	switch err := h.Unlock(ctx); {
	case errors.Is(err, redlatch.ErrLost):
		fmt.Println("unlocks: too late:", err)
	case err != nil:
		return err
	default:
		fmt.Println("unlocks: released")
	}
	return nil
}

// holder is the handle of a holder's process.
type holder struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
}

func play() error {
	ctx := context.Background()
	url, stop, err := server.URL()
	if err != nil {
		return err
	}
	defer stop()
	dir, err := os.MkdirTemp("", "fencing")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "report.db")
	db, err := openStore(path)
	if err != nil {
		return err
	}
	defer db.db.Close()
	if err := db.create(ctx); err != nil {
		return err
	}
	return story(ctx, db, url, path)
}

func story(ctx context.Context, db *store, url, path string) error {
	fmt.Println("Two processes write to one table, under one lock. The first is paused before it writes.")
	first, err := start("1", url, path)
	if err != nil {
		return err
	}
	defer first.cmd.Process.Kill()
	first.say()
	fmt.Println("process 1  is stopped (SIGSTOP): no renewal, no word to anybody. Its lease of 1s ends")
	if err := first.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}

	second, err := start("2", url, path)
	if err != nil {
		return err
	}
	defer second.cmd.Process.Kill()
	second.say()
	second.finish()

	fmt.Println("process 1  goes on (SIGCONT), where it stood: about to write")
	if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	first.finish()

	row, err := db.show(ctx)
	fmt.Println("the table has", row)
	return err
}

func start(name, url, path string) (*holder, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "FENCING_HOLDER="+name, "FENCING_URL="+url, "FENCING_DB="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &holder{name, cmd, in, bufio.NewScanner(out)}, cmd.Start()
}

// say prints the holder's next line.
func (h *holder) say() {
	if h.out.Scan() {
		fmt.Printf("process %s  %s\n", h.name, h.out.Text())
	}
}

// finish lets the holder write and end.
func (h *holder) finish() {
	fmt.Fprintln(h.in)
	for range 2 {
		h.say()
	}
	_ = h.cmd.Wait()
}
