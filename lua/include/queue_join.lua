-- Puts a waiter into the queue: behind all others, or where its ticket says, if
-- it has one from before. A waiter that is in it stays where it is. A caller that
-- knows that the queue is not there says so: then it is alone. The ticket, or the
-- refusal.
local function queue_join(at, member, ticket, now_us, alone)
  local had = not alone and redis.call('ZSCORE', KEYS[at + 3], member)
  if had then
    ticket = tonumber(had)
  elseif ticket == 0 then
    local last = alone and {} or redis.call('ZRANGE', KEYS[at + 3], -1, -1, 'WITHSCORES')
    ticket = math.max(tonumber(last[2] or 0) + 1, now_us)
  end
  local _, _, heartbeat_ms = queue_waiter(member)
  local refused = not had and refusal(redis.pcall('ZADD', KEYS[at + 3], ticket, member))
  return ticket, refused or queue_beat(at, member, heartbeat_ms, math.floor(now_us / 1000), alone)
end
