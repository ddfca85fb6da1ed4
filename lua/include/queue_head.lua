-- The first waiter of the queue, after the dead were buried, and how long its
-- heartbeat lasts yet: never more than one, also when the clock was set back.
-- Nothing when nobody waits. Those before it without a heartbeat, because a key was
-- lost, are dropped; they queue again. And whether there are more of them than the
-- budget allows: then the first is not known.
local function queue_head(at, now_ms, grace_ms)
  local lost = {}
  for i = 0, math.max(budget.left, 0) do
    local first = redis.call('ZRANGE', KEYS[at + 3], i, i)[1]
    local _, _, heartbeat_ms = queue_waiter(first or '')
    local end_ms = heartbeat_ms and redis.call('ZSCORE', KEYS[at + 4], first)
    if end_ms or not first then
      if i > 0 then
        budget.left = budget.left - 2 * i
        queue_remove(at, lost)
      end
      return first, end_ms and math.max(math.min(math.max(tonumber(end_ms), grace_ms) - now_ms, heartbeat_ms), 1), false
    end
    lost[i + 1] = first
  end
  budget.left = 0
  queue_remove(at, lost)
  return nil, nil, redis.call('ZCARD', KEYS[at + 3]) > 0
end
