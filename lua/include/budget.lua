-- budget: how much one call may do for others.

-- What one call may do for others than its own waiters, so that it keeps the server busy for about
-- five milliseconds at most. To drop a waiter or a permit costs one, a grant costs ten. All locks
-- of a call share the budget. To look through permits of many units costs nothing: see ADR 9.
local budget = {left = 500}
