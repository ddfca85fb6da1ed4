-- Extends the lease of a permit that has not ended, never shortens it, never
-- revives one. Whether it is there with all its units; and the refusal if there is
-- one.
local function permits_extend(at, acquisition, units, now_ms, end_ms)
  local left, weight = units, 1
  for level = 0, 30 do
    if left % 2 == 1 then
      local from, entry = level * 4398046511104, string.format('%s#%.0f', acquisition, weight)
      local score = tonumber(redis.call('ZSCORE', KEYS[at + 1], entry) or 0)
      local refused = score > from + now_ms and score < from + end_ms
        and refusal(redis.pcall('ZADD', KEYS[at + 1], from + end_ms, entry))
      if score <= from + now_ms or refused then
        return false, refused
      end
    end
    left, weight = (left - left % 2) / 2, 2 * weight
  end
  return units > 0
end
