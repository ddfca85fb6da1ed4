-- Until when nobody in the queue counts as dead. A grace of one heartbeat is
-- given when even the freshest waiter has not been heard of for half of one: then
-- it was the server that stood still, or all are dead. Not twice without a sign
-- of life in between, and not twice within two heartbeats, or a single waiter
-- that is always late would keep the dead alive. Called before a beat is noted.
local function queue_grace(at, now_ms)
  local grace_ms = tonumber(redis.call('ZSCORE', KEYS[at + 4], 'grace') or 0)
  local freshest = redis.call('ZRANGE', KEYS[at + 4], -1, -1, 'WITHSCORES')
  local _, _, heartbeat_ms = queue_waiter(freshest[1] or '')
  local end_ms = tonumber(freshest[2] or 0)
  -- Else there is nobody, only the grace itself, or only notes of removed ones.
  if not heartbeat_ms or end_ms <= 0 then
    return grace_ms
  end
  if end_ms > now_ms + heartbeat_ms then
    -- The clock was set back: one heartbeat from now, for all, the dead too.
    local far = redis.call('ZRANGEBYSCORE', KEYS[at + 4], now_ms + heartbeat_ms + 1, '+inf', 'LIMIT', 0, 1000)
    for i = 1, #far do
      local _, _, own_ms = queue_waiter(far[i])
      redis.pcall('ZADD', KEYS[at + 4], now_ms + (own_ms or heartbeat_ms), far[i])
    end
  end
  if end_ms - now_ms < heartbeat_ms / 2 and now_ms >= grace_ms + heartbeat_ms then
    grace_ms = now_ms + heartbeat_ms
    redis.pcall('ZADD', KEYS[at + 4], grace_ms, 'grace')
  end
  return grace_ms
end
