// Package mutex contains what the re-entrant and the fair mutex share, because both guard the same
// key. That is what a client knows of a lock, and every operation on a lock that is held. Each kind
// of mutex has its own way to wait.
//
//	Registry    for each name in use, its lock state (LockState)
//	Core        a name with its settings: inspect, force release
//	Request     one Lock or TryLock in progress
//	HoldCounter the commands for re-entry and inner releases
package mutex
