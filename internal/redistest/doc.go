// Package redistest gives tests something to talk to: a real server as a
// child process, an embedded one, and a proxy that makes either of them fail
// in a chosen way at a chosen command. It is imported by tests alone.
//
//	Start, Shared   a real redis-server or valkey-server
//	Embedded        miniredis on TCP, with a clock that runs
//	Bubble          miniredis in virtual time, for testing/synctest
//	NewProxy        faults in front of a real or an embedded server
//	Each            one test on every server and protocol
//
// The fault rules are the same in virtual time and on TCP, so a scenario found
// in simulation has its twin on a real server for the price of one line.
// What no server double can show, another Lua, another clock, another idea of
// what an error looks like, only the twin shows.
//
// Where a machine has no server, the tests that need one are skipped and say
// so; with REDLATCH_REQUIRE_SERVER=1, as in make test and CI, they fail, since
// a suite that skips in silence proves nothing.
package redistest
