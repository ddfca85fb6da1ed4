-- Takes waiters out of the queue. With the last one goes the grace, so that
-- nothing is left. The refusal if there is one.
local function queue_remove(at, members)
  local refused = refusal(redis.pcall('ZREM', KEYS[at + 3], unpack(members)))
  if refused then
    return refused
  end
  if redis.call('ZCARD', KEYS[at + 3]) == 0 then
    members[#members + 1] = 'grace'
  end
  return refusal(redis.pcall('ZREM', KEYS[at + 4], unpack(members)))
end
