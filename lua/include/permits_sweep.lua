-- Drops entries of one level that are over, and what their holders said. How many.
local function permits_sweep(at, from, now_ms, most)
  local over = redis.call('ZRANGEBYSCORE', KEYS[at + 1], from + 2147483648, from + now_ms, 'LIMIT', 0, most)
  if #over > 0 then
    local holders = {}
    for i = 1, #over do
      holders[i] = string.match(over[i], '^(.*)#')
    end
    redis.pcall('ZREM', KEYS[at + 1], unpack(over))
    redis.pcall('HDEL', KEYS[at + 2], unpack(holders))
  end
  return #over
end
