-- What one call may do for others than its own waiters, so that it keeps the
-- server for about five milliseconds, whatever has piled up: dropping a waiter or
-- a permit costs one, a grant ten. All locks of a call share it. What does not count is
-- looking through permits of many units: see ADR 9.
local budget = {left = 500}
