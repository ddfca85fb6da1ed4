// Package mutex is what the re-entrant and the fair mutex share, who guard the
// same key: what a client knows of a lock, and everything that is done with a
// lock once it is there. How to wait for it is left to each of them.
//
//	Book     for each name in use, a Record: which chain of calls has the lock
//	Named    a name with its settings: inspecting, forcing
//	Want     one Lock or TryLock of a user
//	Counting the commands for re-entry and inner releases
package mutex
