-- In how many ms a waiter should look again: when the next lease ends, or the first
-- of the queue, which does not fit, counts as dead; at once while there is more to do
-- than one call may; -1: there is nothing to wait for.
local function permits_next(next_ms, more, head_ms)
  if more then
    return 0
  end
  if head_ms and (next_ms < 0 or head_ms < next_ms) then
    return head_ms
  end
  return next_ms
end
