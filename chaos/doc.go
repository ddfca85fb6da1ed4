// Package chaos has the rows of the fault suite: what is promised, held against a
// real server and real processes to which real faults happen. There is nothing in
// it but tests.
//
//	go test ./...       rows that measure no time and take little, at a tiny scale
//	make chaos-short    the same and those that take long, at a small scale
//	make chaos          every row, those that measure time too, at the scale of the targets: just under an hour
//
// A row has a target, figures, and bites: how often its fault really happened, as
// counted where it happened (by the server, the proxy, the kernel), not where it
// was asked for. A row without bites has shown nothing, and is invalid, not green.
// So is a row that did less than its target names.
//
// The table of a whole run is kept in
// docs/reliability.md.
//
// A new primitive joins by a line in primitives, with its model in internal/check.
package chaos
