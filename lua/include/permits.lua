-- permits: the permit of an acquisition: entries of one sorted set, for powers of two of units.
-- include errors units

-- Keeps limit, permits and descriptions for keep_ms, and up to an hour more; for ever if that is 0. It
-- never shortens their life, and never makes it shorter than entry_ms, the lease just written. So the
-- key outlives each of its entries, whoever writes. Returns the refusal if there is one. Redis accepts
-- both writes when it is out of memory. After them, Redis accepts the others too.
local function keep_permits(at, keep_ms, entry_ms)
  local left_ms = redis.pcall('PTTL', KEYS[at + 1])
  if refusal(left_ms) then
    return refusal(left_ms)
  end
  if keep_ms == 0 or left_ms == -1 then
    redis.pcall('PERSIST', KEYS[at + 2])
    return refusal(redis.pcall('PERSIST', KEYS[at + 1]))
  end
  local least_ms = math.max(keep_ms, entry_ms)
  if left_ms < least_ms then
    left_ms = with_reserve(least_ms)
  end
  redis.pcall('PEXPIRE', KEYS[at + 2], left_ms)
  return refusal(redis.pcall('PEXPIRE', KEYS[at + 1], left_ms))
end

-- The entries of a permit, and a list of their scores with them, as ZADD takes it, for a lease that
-- ends at end_ms.
local function permit_entries(acquisition, units, end_ms)
  local left, weight, entries, ends = units, 1, {}, {}
  for level = 0, 30 do
    if left == 0 then
      break
    end
    if left % 2 == 1 then
      entries[#entries + 1] = string.format('%s#%d', acquisition, weight)
      ends[2 * #entries - 1], ends[2 * #entries] = level * level_span + end_ms, entries[#entries]
    end
    left, weight = (left - left % 2) / 2, 2 * weight
  end
  return entries, ends
end

-- Removes the permit of an acquisition, ended or not: of that many units, or of all if units is
-- nil. Its description stays for forget_holder. A caller of read_lowest passes the lowest entries.
-- Returns how many units had not ended, and the refusal if there is one. Then nothing has changed: it
-- reads all entries before it writes.
local function drop_permit(at, acquisition, units, now_ms, lowest)
  local left, weight, found, live = units or 2 ^ 31 - 1, 1, {}, 0
  for level = 0, 30 do
    if left == 0 then
      break
    end
    if left % 2 == 1 then
      local entry = string.format('%s#%d', acquisition, weight)
      local score = lowest and lowest[1] == entry and lowest[2] or redis.call('ZSCORE', KEYS[at + 1], entry)
      found[#found + 1] = score and entry or nil
      if score and tonumber(score) > level * level_span + now_ms then
        live = live + weight
      end
    end
    left, weight = (left - left % 2) / 2, 2 * weight
  end
  local refused = found[1] and refusal(redis.pcall('ZREM', KEYS[at + 1], unpack(found)))
  if refused then
    return 0, refused
  end
  return live
end

-- The acquisitions to which this call has given units.
local new_holders = {}

-- Deletes the description of an acquisition that has no permit any more. Scripts call it after they have
-- given the units to others, so that the key of the descriptions does not vanish in between. The
-- acquisition may be one of those others: an id that an operator ends may still wait.
local function forget_holder(at, acquisition)
  if not new_holders[acquisition] then
    redis.pcall('HDEL', KEYS[at + 2], acquisition)
  end
end

-- Takes the units from an acquisition that this call has given them to, because Redis refused what
-- follows the grant. If the user may not remove the entries, they get an end in 1970: Redis has
-- just accepted such a write. An entry that has ended has no units, and a later call drops it.
local function undo_permit(at, acquisition, units)
  local entries, ends = permit_entries(acquisition, units, lowest_end)
  if refusal(redis.pcall('ZREM', KEYS[at + 1], unpack(entries))) then
    redis.pcall('ZADD', KEYS[at + 1], unpack(ends))
  end
  redis.pcall('HDEL', KEYS[at + 2], acquisition)
end

-- Keeps the keys for a permit that this call has written, and returns the refusal if there is one. Then
-- it takes the permit back.
local function keep_new_permit(at, acquisition, units, lease_ms, keep_ms)
  local refused = keep_permits(at, keep_ms, lease_ms)
  if refused then
    undo_permit(at, acquisition, units)
  end
  return refused
end

-- Gives units to an acquisition for a lease, and returns the refusal if there is one. Then nothing
-- has changed. The description is for people and decides nothing, so its refusal does not count.
local function write_permit(at, acquisition, units, description, now_us, lease_ms, keep_ms)
  local _, ends = permit_entries(acquisition, units, math.floor(now_us / 1000) + lease_ms)
  local refused = ends[1] and refusal(redis.pcall('ZADD', KEYS[at + 1], unpack(ends)))
  if refused then
    return refused
  end
  new_holders[acquisition] = true
  local requested = table.concat({string.format('%.0f %d ', now_us, units), description})
  redis.pcall('HSET', KEYS[at + 2], acquisition, requested)
  return keep_new_permit(at, acquisition, units, lease_ms, keep_ms)
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
