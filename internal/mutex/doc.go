// Package mutex contains what the re-entrant and the fair mutex share, because both guard the same
// key. That is what a client knows of a lock, and every operation on a lock that is held. Each kind
// of mutex has its own way to wait.
//
//	Book     the registry: for each name in use, its lock state (Record)
//	Named    a name with its settings: inspect, force release
//	Want     one request: a Lock or TryLock of a user
//	Counting the commands for re-entry and inner releases
package mutex
