-- Gives units to an acquisition, for that long. What is refused is refused by the
-- first write, with nothing changed. The description is for people; nothing rests
-- on it, so that its being refused is no refusal.
local function permits_write(at, acquisition, units, about, now_us, lease_ms, keep_ms)
  local left, weight, end_ms = units, 1, math.floor(now_us / 1000) + lease_ms
  for level = 0, 30 do
    if left == 0 then
      break
    end
    if left % 2 == 1 then
      local entry = string.format('%s#%d', acquisition, weight)
      local refused = refusal(redis.pcall('ZADD', KEYS[at + 1], level * 4398046511104 + end_ms, entry))
      if refused then
        return refused
      end
    end
    left, weight = (left - left % 2) / 2, 2 * weight
  end
  local said = table.concat({string.format('%.0f %d ', now_us, units), about})
  redis.pcall('HSET', KEYS[at + 2], acquisition, said)
  local refused = permits_keep(at, keep_ms, lease_ms)
  if refused then
    permits_drop(at, acquisition, units, 0)
  end
  return refused
end
