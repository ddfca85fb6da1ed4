// Package interop proves that Go and Java share locks. Its tests use the real Redisson (driver/, a
// Maven project) and this library on the same names of the same servers.
//
//	make interop
//
// does all of it. It fetches Maven, a JDK and Redisson, builds the driver, and runs all tests.
// Plain go test ./... skips the tests that need Java, and says so. It does run the comparison with
// the recorded dialogue (dialogue/). docs/redisson.md lists what the tests prove.
package interop
