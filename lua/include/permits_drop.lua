-- Takes a permit away, over or not; of that many units, or, when they are not known,
-- of all that it has. A caller that looked passes the lowest entries. How many were not
-- over; and the refusal if there is one.
local function permits_drop(at, acquisition, units, now_ms, entries)
  local left, weight, live = units or 2147483647, 1, 0
  for level = 0, 30 do
    if left == 0 then
      break
    end
    if left % 2 == 1 then
      local entry = string.format('%s#%d', acquisition, weight)
      local score = entries and entries[1] == entry and entries[2] or redis.call('ZSCORE', KEYS[at + 1], entry)
      local refused = score and refusal(redis.pcall('ZREM', KEYS[at + 1], entry))
      if refused then
        return live, refused
      end
      if score and tonumber(score) > level * 4398046511104 + now_ms then
        live = live + weight
      end
    end
    left, weight = (left - left % 2) / 2, 2 * weight
  end
  redis.pcall('HDEL', KEYS[at + 2], acquisition)
  return live
end
