-- Drops entries of one level that are over, and what their holders said. How many.
local function permits_sweep(at, from, now_ms, most)
  local over = redis.call('ZRANGEBYSCORE', KEYS[at + 1], from + 2147483648, from + now_ms, 'LIMIT', 0, most)
  for i = 1, #over do
    redis.pcall('ZREM', KEYS[at + 1], over[i])
    redis.pcall('HDEL', KEYS[at + 2], string.match(over[i], '^(.*)#'))
  end
  return #over
end
