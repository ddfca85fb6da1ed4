// Package acquisition contains what all re-entrant locks share after a grant. It counts the holds
// of the grant, keeps its lease alive, notifies holders of its loss, and releases it.
//
//	        Reenter, inner Unlock
//	            ┌───┐
//	grant ──▶ live ─┴─▶ releasing ─▶ released
//	            │           │
//	            └─▶ lost ◀──┘   (the server says it is not ours)
//
// The count is kept here, and Redis gets the absolute number. So a late copy of a command can make
// the number in Redis old, but never the count wrong. The next command corrects the number. A
// release names the acquisition by its id, whatever the number is.
package acquisition
