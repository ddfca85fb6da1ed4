// Package redistest gives tests servers to use. They are a real server as a child process, and an
// embedded one. A proxy makes either of them fail in a chosen way at a chosen command. Only tests
// import the package, and the module redlatchtest, which gives a part of it to users.
//
//	Start, Shared   a real redis-server or valkey-server
//	Embedded        miniredis on TCP, with a clock that runs
//	Bubble          miniredis in virtual time, for testing/synctest
//	NewProxy        faults in front of a real or an embedded server
//	Each            one test on every server and protocol
//
// The fault rules are the same in virtual time and on TCP. So one more line runs a scenario of the
// simulation on a real server too. Only the real server shows what no server double can show:
// another Lua, another clock, or other errors.
//
// If a machine has no server, the tests that need one are skipped and say so. With
// REDLATCH_REQUIRE_SERVER=1, as in make test and CI, they fail instead, because a suite that skips
// silently proves nothing.
package redistest
