-- Sets the lease of a permit that has not ended to that long from now, 0 leaves it
-- as it is; never revives one. An acquisition has one lease all its life, so it is
-- only ever longer, but for one that a clock set back has stretched. Whether the
-- permit is there with all its units; and the refusal if there is one.
local function permits_extend(at, acquisition, units, now_ms, lease_ms, keep_ms)
  local left, weight, ends = units, 1, {}
  for level = 0, 30 do
    if left == 0 then
      break
    end
    if left % 2 == 1 then
      local from, entry = level * 4398046511104, string.format('%s#%d', acquisition, weight)
      if tonumber(redis.call('ZSCORE', KEYS[at + 1], entry) or 0) <= from + now_ms then
        return false
      end
      ends[#ends + 1], ends[#ends + 2] = from + now_ms + lease_ms, entry
    end
    left, weight = (left - left % 2) / 2, 2 * weight
  end
  -- Once for all entries: a permit may have 31, and one call may extend a hundred.
  local refused = units > 0 and lease_ms > 0 and (permits_keep(at, keep_ms, lease_ms)
    or refusal(redis.pcall('ZADD', KEYS[at + 1], unpack(ends))))
  if refused then
    return false, refused
  end
  return units > 0
end
