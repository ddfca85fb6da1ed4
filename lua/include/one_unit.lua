-- one_unit: grant and release of one unit of a semaphore for which nobody waits.
-- include units

-- As in alone.lua, the common case has functions of its own. They only serve a semaphore whose permits
-- have one unit each and have not ended. Otherwise the scripts go on with the functions for all cases.
-- Redis takes longer to read a number of a script than a text, so constants are texts.

-- The reply for the five lowest scores; the limit; how many of these members are reserved; and the
-- score of the first entry, nil if there is none. If there is a foreign member, that score is too low
-- for an entry, because at most three members are reserved.
local function read_first()
  local lowest, limit, reserved = redis.pcall('ZRANGE', KEYS[1], '0', '4', 'WITHSCORES'), nil, 0
  for i = 1, #lowest, 2 do
    if lowest[i] == 'limit' then
      limit, reserved = tonumber(lowest[i + 1]), reserved + 1
    elseif lowest[i] == 'declared' or lowest[i] == 'resized' then
      reserved = reserved + 1
    end
  end
  return lowest, limit, reserved, tonumber(lowest[2 * reserved + 2])
end

-- Gives a unit to an acquisition if it has none, and if one is free. Returns whether it wrote the entry,
-- whether the keys live for long enough too, and the reply for the five lowest scores.
local function grant_one_unit(acquisition, description, lease_ms, now_us, now_text, requested, keep_ms)
  local now_ms, in_use = math.floor(now_us / 1000), 0
  local lowest, limit, reserved, first = read_first()
  if first then
    local members, highest = #lowest / 2, lowest[#lowest]
    if members == 5 then
      members, highest = redis.call('ZCARD', KEYS[1]), redis.call('ZRANGE', KEYS[1], '-1', '-1', 'WITHSCORES')[2]
    end
    in_use = first > now_ms and tonumber(highest) < level_span and members - reserved or limit
  end
  local ends = string.format('%d', now_ms + lease_ms)
  if limit ~= requested or in_use >= limit
    or redis.pcall('ZADD', KEYS[1], 'NX', ends, string.format('%s#1', acquisition)) ~= 1 then
    return false, false, lowest
  end
  redis.pcall('HSET', KEYS[2], acquisition, string.format('%s 1 %s', now_text, description))
  local left_ms = redis.pcall('PTTL', KEYS[1])
  local kept = left_ms == -1 or type(left_ms) == 'number' and keep_ms > 0 and left_ms >= keep_ms
    and left_ms >= lease_ms and type(redis.pcall('PEXPIRE', KEYS[2], left_ms)) == 'number'
  return true, kept, lowest
end

-- Removes the unit of an acquisition. Returns whether it did so, and the reply of ZCARD of the queue. If
-- the queue is not empty, the description is left for forget_holder. If the member before the last one is
-- reserved, the last one is the only entry.
local function release_one_unit(acquisition, now_ms)
  local last = redis.pcall('ZRANGE', KEYS[1], '-2', '-1', 'WITHSCORES')
  local ends = tonumber(last[4])
  local alone = last[1] == 'limit' or last[1] == 'declared'
  if not ends or ends <= now_ms or ends >= level_span
    or not alone and redis.pcall('ZCOUNT', KEYS[1], lowest_end, now_ms) ~= 0
    or redis.pcall('ZREM', KEYS[1], string.format('%s#1', acquisition)) ~= 1 then
    return false
  end
  local length = KEYS[3] and redis.pcall('ZCARD', KEYS[3])
  if length == 0 then
    redis.pcall('HDEL', KEYS[2], acquisition)
  end
  return true, length
end
