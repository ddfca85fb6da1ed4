-- Until when nobody in the queue counts as dead. A grace of one heartbeat is
-- given when even the freshest waiter has not been heard of for half of one: then
-- it was the server that stood still, or all are dead. Not twice without a sign
-- of life in between, and not twice within two heartbeats, or a single waiter
-- that is always late would keep the dead alive. Called before a beat is noted.
-- Ends further ahead than a heartbeat are from before the clock was set back: they
-- become one heartbeat from now, of the dead too. And whether there are more of
-- those than the budget allows.
local function queue_grace(at, now_ms)
  local last = redis.call('ZRANGE', KEYS[at + 4], -2, -1, 'WITHSCORES')
  -- Only where there are more than two may the grace be another than these.
  local grace_ms = last[#last - 1] == 'grace' and last[#last] or last[1] == 'grace' and last[2]
    or #last == 4 and redis.call('ZSCORE', KEYS[at + 4], 'grace') or 0
  grace_ms = tonumber(grace_ms)
  local freshest = last[#last - 1] == 'grace' and 1 or #last - 1
  local _, _, heartbeat_ms = queue_waiter(last[freshest] or '')
  local end_ms = tonumber(last[freshest + 1] or 0)
  -- Else there is nobody, only the grace itself, or only notes of removed ones.
  if not heartbeat_ms or end_ms <= 0 then
    return grace_ms, false
  end
  if math.max(end_ms, grace_ms) > now_ms + heartbeat_ms then
    grace_ms = math.min(grace_ms, now_ms + heartbeat_ms)
    return grace_ms, queue_clip(at, now_ms, heartbeat_ms)
  end
  if end_ms > grace_ms and end_ms - now_ms < heartbeat_ms / 2 and now_ms >= grace_ms + heartbeat_ms then
    grace_ms = now_ms + heartbeat_ms
    redis.pcall('ZADD', KEYS[at + 4], grace_ms, 'grace')
  end
  return grace_ms, false
end
