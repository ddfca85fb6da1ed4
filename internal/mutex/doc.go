// Package mutex contains what the re-entrant and the fair mutex share, because both guard the same
// key. That is what a client knows of a lock, and every operation on a lock that is held. Each kind
// of mutex has its own way to wait.
//
//	Registry    for each name in use, its lock state (LockState)
//	Core        a name with its settings: inspect, force release
//	Request     one Lock or TryLock in progress, and the commands for the lock that it got
package mutex
