-- What one call may do for others than its own waiters, so that it keeps the
-- server for five milliseconds at most, whatever has piled up: dropping a waiter or
-- a permit costs one, a grant ten. All locks of a call share it.
local budget = {left = 500}
