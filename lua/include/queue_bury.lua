-- Drops waiters whose heartbeat has ended, and notes about removed ones that are
-- old (see fair/remove.lua: their scores are negative): a thousand at most, so
-- that no call keeps the server for long. Whether there may be more.
local function queue_bury(at, now_ms, grace_ms)
  if grace_ms > now_ms then
    return false
  end
  local most = 1000
  local dead = redis.call('ZRANGEBYSCORE', KEYS[at + 4], -now_ms, now_ms, 'LIMIT', 0, most)
  for i = 1, #dead do
    if dead[i] ~= 'grace' and queue_remove(at, dead[i]) then
      return false
    end
  end
  return #dead == most
end
