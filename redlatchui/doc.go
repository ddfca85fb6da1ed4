// Package redlatchui is a live page that shows the locks and semaphores in Redis: who holds them,
// since when, and who waits.
//
// New makes an http.Handler to mount in a program:
//
//	page, err := redlatchui.New(rdb, locks, redlatchui.WithPrefix("/locks"))
//	mux.Handle("/locks/", requireLogin(page))
//
// The page is read-only. WithActions lets people release locks, remove waiters and resize
// semaphores. The handler does not know who asks: put it behind the login of the program.
//
// # What it costs
//
// While nobody looks at the page, it sends nothing to Redis. While somebody does, one goroutine
// reads for all viewers. It looks for names with SCAN at most once a second, and less often if that
// takes long. The page docs/page.md has the figures.
//
// # Versions
//
// Use the version of this module that belongs to the version of redlatch: it uses internal packages
// of redlatch.
package redlatchui
