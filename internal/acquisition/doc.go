// Package acquisition has what all re-entrant locks share once they are
// granted: counting the holds of one grant, keeping its lease alive, telling its
// loss, giving it back.
//
//	        Reenter, inner Unlock
//	            ┌───┐
//	grant ──▶ live ─┴─▶ leaving ──▶ released
//	            │           │
//	            └─▶ lost ◀──┘   (the server says it is not ours)
//
// The count is kept here and Redis is told the absolute number, so a copy of a
// command that arrives late can make the number in Redis old, but never the
// count wrong; and the next command mends the number. What is released is the
// acquisition by its id, whatever the number says.
package acquisition
