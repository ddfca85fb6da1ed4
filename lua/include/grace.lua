-- grace: the grace for all waiters after the server stood still, and heartbeats that end too late.
-- include errors budget queue

-- Shortens heartbeats that end more than a heartbeat from now: to the heartbeat of the waiter, and
-- for the grace to the given one. Returns whether there are more of them than the budget allows.
local function clip_heartbeats(at, now_ms, heartbeat_ms)
  local most = math.max(budget.left, 1)
  local far = redis.call('ZRANGEBYSCORE', KEYS[at + 4], now_ms + heartbeat_ms + 1, '+inf',
    'WITHSCORES', 'LIMIT', 0, most)
  if budget.left <= 0 then
    return true
  end
  local clipped = {}
  for i = 1, #far, 2 do
    local _, _, own_ms = parse_waiter(far[i])
    clipped[i] = math.min(tonumber(far[i + 1]), now_ms + (own_ms or heartbeat_ms))
    clipped[i + 1] = far[i]
  end
  budget.left = budget.left - #far / 2
  return not refusal(redis.pcall('ZADD', KEYS[at + 4], unpack(clipped))) and #far / 2 == most
end

-- The end of the grace: until then, no waiter counts as expired. Call it before a heartbeat is
-- written.
--
-- It gives a grace of one heartbeat if the last sign of life of all waiters is more than half a
-- heartbeat old. Then the server stood still, or all waiters have crashed. It gives another grace
-- only after a sign of life, and only two heartbeats later. Otherwise a single waiter that is
-- always late would keep the expired ones.
--
-- Heartbeats that end more than a heartbeat from now are from before somebody set the clock back.
-- They are shortened to one heartbeat from now, those of crashed waiters too. Also returns whether
-- there are more of those than the budget allows.
local function grace_end(at, now_ms)
  local last = redis.call('ZRANGE', KEYS[at + 4], -2, -1, 'WITHSCORES')
  -- Only where there are more than two may the grace be another than these.
  local grace_ms = last[#last - 1] == 'grace' and last[#last] or last[1] == 'grace' and last[2]
    or #last == 4 and redis.call('ZSCORE', KEYS[at + 4], 'grace') or 0
  grace_ms = tonumber(grace_ms)
  local freshest = last[#last - 1] == 'grace' and 1 or #last - 1
  local _, _, heartbeat_ms = parse_waiter(last[freshest] or '')
  local end_ms = tonumber(last[freshest + 1] or 0)
  -- Else there is nobody, only the grace itself, or only notes of removed ones.
  if not heartbeat_ms or end_ms <= 0 then
    return grace_ms, false
  end
  if math.max(end_ms, grace_ms) > now_ms + heartbeat_ms then
    grace_ms = math.min(grace_ms, now_ms + heartbeat_ms)
    return grace_ms, clip_heartbeats(at, now_ms, heartbeat_ms)
  end
  if end_ms > grace_ms and end_ms - now_ms < heartbeat_ms / 2 and now_ms >= grace_ms + heartbeat_ms then
    grace_ms = now_ms + heartbeat_ms
    redis.pcall('ZADD', KEYS[at + 4], grace_ms, 'grace')
  end
  return grace_ms, false
end
