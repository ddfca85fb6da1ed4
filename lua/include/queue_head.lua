-- The first waiter of the queue, after the dead were buried, and how long its
-- heartbeat lasts yet: never more than one, also when the clock was set back.
-- Nothing when nobody waits. Those without a heartbeat, because a key was lost,
-- are dropped; they queue again.
local function queue_head(at, now_ms, grace_ms)
  for _ = 1, 1000 do
    local first = redis.call('ZRANGE', KEYS[at + 3], 0, 0)[1]
    if not first then
      return nil
    end
    local _, _, heartbeat_ms = queue_waiter(first)
    local end_ms = redis.call('ZSCORE', KEYS[at + 4], first)
    if heartbeat_ms and end_ms then
      return first, math.max(math.min(math.max(tonumber(end_ms), grace_ms) - now_ms, heartbeat_ms), 1)
    end
    queue_remove(at, first)
  end
end
