-- Takes waiters out of the queue. With the last one goes the grace, so that
-- nothing is left. The refusal if there is one.
local function queue_remove(at, members)
  local refused = refusal(redis.pcall('ZREM', KEYS[at + 3], unpack(members)))
    or refusal(redis.pcall('ZREM', KEYS[at + 4], unpack(members)))
  if not refused and redis.call('ZCARD', KEYS[at + 3]) == 0 then
    redis.call('ZREM', KEYS[at + 4], 'grace')
  end
  return refused
end
