-- units: which units of a semaphore are in use, and its limit.
-- include errors budget

-- The score of an entry is level * level_span + the end of its lease in server ms. The span is 2^42
-- ms, some 139 years.
local level_span = 4398046511104

-- How long Redis keeps a key that it must keep for that long: up to an hour more, so that most calls
-- need not extend it.
local function with_reserve(keep_ms)
  return keep_ms + math.min(keep_ms, 3600000)
end

-- Lower scores than this belong to reserved members. The end of an entry is never lower: the score
-- of a permit that is taken back is exactly this.
local lowest_end = 2147483648

-- The limit, and the first entries of permits, each with its score. The caller has read the members
-- with the five lowest scores. At most three members are reserved, so the list shows whether there is
-- no entry, one or more. If the limit is nil, it is not among them, or a foreign member is, and the
-- list is empty.
local function read_lowest(lowest)
  local limit, entries = nil, {}
  for i = 1, #lowest, 2 do
    if lowest[i] == 'limit' then
      limit = tonumber(lowest[i + 1])
    elseif lowest[i] ~= 'declared' and lowest[i] ~= 'resized' then
      entries[#entries + 1], entries[#entries + 2] = lowest[i], lowest[i + 1]
    end
  end
  if entries[1] and tonumber(entries[2]) < lowest_end then
    return nil, {}
  end
  return limit, entries
end

-- Removes the limit that this call has made the limit, because Redis refused what follows.
local function forget_limit(at)
  redis.pcall('ZREM', KEYS[at + 1], 'limit', 'declared', 'resized')
end

-- The limit, and the refusal if there is one. The limit is the score of a reserved member, below
-- all times. So are the declared limit, and minus the stamp of the last resize. If Redis knows no
-- limit, the requested one becomes the limit, and descriptions that earlier permits left are
-- deleted. Returns nil if there is no requested limit either. Also returns whether this call has
-- made the requested limit the limit; if Redis refused that, it has not.
local function read_limit(at, requested, keep_ms)
  local limit = redis.pcall('ZSCORE', KEYS[at + 1], 'limit')
  local refused = refusal(limit)
  if refused or limit then
    return not refused and tonumber(limit), refused
  end
  if requested then
    refused = refusal(redis.pcall('ZADD', KEYS[at + 1], requested, 'limit', requested, 'declared'))
      or keep_ms > 0 and refusal(redis.pcall('PEXPIRE', KEYS[at + 1], with_reserve(keep_ms)))
    -- Not before: Redis without memory accepts what comes behind a DEL.
    if not refused then
      redis.pcall('DEL', KEYS[at + 2])
    else
      redis.pcall('ZREM', KEYS[at + 1], 'limit', 'declared')
    end
  end
  return requested, refused, requested and not refused
end

-- Removes entries of one level that have ended, and the descriptions of their holders. Returns how
-- many.
local function drop_ended(at, from, now_ms, most)
  local over = redis.call('ZRANGEBYSCORE', KEYS[at + 1], from + lowest_end, from + now_ms, 'LIMIT', 0, most)
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

-- How many units are in use, and in how many ms the next lease ends, -1 if there is none.
--
-- Permits are entries of one sorted set. An entry <acquisition>#<2^level> stands for 2^level
-- units. Its score is level * 2^42 + the end of its lease in server ms. So any number of units is
-- a few entries, and this function counts them level by level. Units of ended entries are free. It
-- removes some of these entries, at most `most`, so that no call keeps the server busy for long. A
-- caller of read_lowest passes the first entry and its score, or an empty list if there is none.
local function count_units(at, now_ms, most, first)
  local in_use, next_ms, from = 0, -1, 0
  most = math.min(most, budget.left)
  for _ = 0, 30 do
    first = first or redis.call('ZRANGEBYSCORE', KEYS[at + 1], from + lowest_end, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not first[1] then
      return in_use, next_ms
    end
    local level = math.floor(tonumber(first[2]) / level_span)
    from = level * level_span
    if tonumber(first[2]) <= from + now_ms then
      local swept = most > 0 and drop_ended(at, from, now_ms, most) or 0
      most, budget.left = most - swept, budget.left - swept
      first = redis.call('ZRANGEBYSCORE', KEYS[at + 1], from + now_ms + 1, from + level_span - 1,
        'WITHSCORES', 'LIMIT', 0, 1)
    end
    if first[2] and (next_ms < 0 or tonumber(first[2]) - from - now_ms < next_ms) then
      next_ms = tonumber(first[2]) - from - now_ms
    end
    in_use = in_use + 2 ^ level * redis.call('ZCOUNT', KEYS[at + 1], from + now_ms + 1, from + level_span - 1)
    from, first = from + level_span, nil
  end
  return in_use, next_ms
end

-- In how many ms a waiter should ask again: when the next lease ends, or when the first waiter,
-- which does not fit, counts as expired; 0 while there is more to do than one call may do; -1 if
-- there is nothing to wait for.
local function next_attempt_ms(next_ms, more, head_ms)
  if more then
    return 0
  end
  if head_ms and (next_ms < 0 or head_ms < next_ms) then
    return head_ms
  end
  return next_ms
end
