// Package chaos has the rows of the fault suite. Each row checks what the library promises, with a
// real server and real processes to which real faults happen. The package has only tests.
//
//	go test ./...       rows that measure no time and take little, at a tiny scale
//	make chaos-short    the same rows and those that take long, at a small scale
//	make chaos-full     the same rows, at the scale of the targets: over an hour
//	make chaos-times    the rows that measure time
//	make chaos          all rows, in two runs
//
// A row has a target, figures, and bites. Bites count how often its fault really happened. They are
// counted where the fault happens (by the server, the proxy, the kernel), not where the test causes
// it. A row without bites has shown nothing, so it is invalid and not green. A row that did less
// than its target names is invalid too.
//
// docs/results/chaos.md has every row of a whole run.
//
// To add a primitive, add a line to primitives, and its model to internal/test/check.
package chaos
