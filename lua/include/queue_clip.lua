-- Brings ends that are more than a heartbeat ahead down to one: each waiter's own,
-- and for the grace the one that is given. Whether there are more of them than the
-- budget allows.
local function queue_clip(at, now_ms, heartbeat_ms)
  local most = math.max(budget.left, 1)
  local far = redis.call('ZRANGEBYSCORE', KEYS[at + 4], now_ms + heartbeat_ms + 1, '+inf',
    'WITHSCORES', 'LIMIT', 0, most)
  if budget.left <= 0 then
    return true
  end
  local clipped = {}
  for i = 1, #far, 2 do
    local _, _, own_ms = queue_waiter(far[i])
    clipped[i] = math.min(tonumber(far[i + 1]), now_ms + (own_ms or heartbeat_ms))
    clipped[i + 1] = far[i]
  end
  budget.left = budget.left - #far / 2
  return not refusal(redis.pcall('ZADD', KEYS[at + 4], unpack(clipped))) and #far / 2 == most
end
