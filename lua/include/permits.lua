-- permits: the permit of an acquisition: entries of one sorted set, for powers of two of units.
-- include errors units

-- Keeps limit, permits and descriptions for keep_ms, for ever if that is 0. It never shortens
-- their life, and never makes it shorter than entry_ms, the lease just written. So the key
-- outlives each of its entries, whoever writes. Returns the refusal if there is one. Redis accepts
-- both writes when it is out of memory. After them, Redis accepts the others too.
local function keep_permits(at, keep_ms, entry_ms)
  local left_ms = redis.call('PTTL', KEYS[at + 1])
  if keep_ms == 0 or left_ms == -1 then
    redis.pcall('PERSIST', KEYS[at + 2])
    return refusal(redis.pcall('PERSIST', KEYS[at + 1]))
  end
  left_ms = math.max(left_ms, keep_ms, entry_ms)
  redis.pcall('PEXPIRE', KEYS[at + 2], left_ms)
  return refusal(redis.pcall('PEXPIRE', KEYS[at + 1], left_ms))
end

-- Removes the permit of an acquisition, ended or not: of that many units, or of all if units is
-- nil. A caller of read_lowest passes the lowest entries. Returns how many units had not ended,
-- and the refusal if there is one.
local function drop_permit(at, acquisition, units, now_ms, entries)
  local left, weight, live = units or 2 ^ 31 - 1, 1, 0
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
      if score and tonumber(score) > level * level_span + now_ms then
        live = live + weight
      end
    end
    left, weight = (left - left % 2) / 2, 2 * weight
  end
  redis.pcall('HDEL', KEYS[at + 2], acquisition)
  return live
end

-- Gives units to an acquisition for a lease, and returns the refusal if there is one. If Redis
-- refuses the first write, nothing has changed. The description is for people and decides nothing,
-- so its refusal does not count.
local function write_permit(at, acquisition, units, description, now_us, lease_ms, keep_ms)
  local left, weight, end_ms = units, 1, math.floor(now_us / 1000) + lease_ms
  for level = 0, 30 do
    if left == 0 then
      break
    end
    if left % 2 == 1 then
      local entry = string.format('%s#%d', acquisition, weight)
      local refused = refusal(redis.pcall('ZADD', KEYS[at + 1], level * level_span + end_ms, entry))
      if refused then
        return refused
      end
    end
    left, weight = (left - left % 2) / 2, 2 * weight
  end
  local requested = table.concat({string.format('%.0f %d ', now_us, units), description})
  redis.pcall('HSET', KEYS[at + 2], acquisition, requested)
  local refused = keep_permits(at, keep_ms, lease_ms)
  if refused then
    drop_permit(at, acquisition, units, 0)
  end
  return refused
end

-- Sets the lease of a permit that has not ended to lease_ms from now, or leaves it if that is 0.
-- It never revives a permit. An acquisition has one lease all its life, so this makes the lease
-- longer, unless a clock that was set back has stretched it. Returns whether the permit is there
-- with all its units, and the refusal if there is one.
local function extend_permit(at, acquisition, units, now_ms, lease_ms, keep_ms)
  local left, weight, ends = units, 1, {}
  for level = 0, 30 do
    if left == 0 then
      break
    end
    if left % 2 == 1 then
      local from, entry = level * level_span, string.format('%s#%d', acquisition, weight)
      if tonumber(redis.call('ZSCORE', KEYS[at + 1], entry) or 0) <= from + now_ms then
        return false
      end
      ends[#ends + 1], ends[#ends + 2] = from + now_ms + lease_ms, entry
    end
    left, weight = (left - left % 2) / 2, 2 * weight
  end
  -- Once for all entries: a permit may have 31, and one call may extend a hundred.
  local refused = units > 0 and lease_ms > 0 and (keep_permits(at, keep_ms, lease_ms)
    or refusal(redis.pcall('ZADD', KEYS[at + 1], unpack(ends))))
  if refused then
    return false, refused
  end
  return units > 0
end
