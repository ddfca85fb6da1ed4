// Package interop proves that Go and Java share locks: its tests drive the real
// Redisson (driver/, a Maven project) and this library on the same names of the
// same servers.
//
//	make interop
//
// does all of it: fetches Maven, a JDK and Redisson, builds the driver, runs the
// tests and leaves none out. Plain go test ./... leaves out what needs Java, and
// says so; what it compares with the recorded dialogue (dialogue/) it does run.
// docs/redisson.md tells what the tests prove.
package interop
