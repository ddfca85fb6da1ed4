-- inspect: read the state of a semaphore, and a part of who has its permits.
--
-- KEYS[1]  zset  redlatch:permits:{name}          entries of permits -> end of their lease; limits
-- KEYS[2]  hash  redlatch:holders:{name}          acquisition -> since, units, description
-- KEYS[3]  zset  redlatch:permits-queue:{name}    waiter -> ticket
-- KEYS[4]  zset  redlatch:permits-alive:{name}    waiter -> end of its heartbeat, server ms
--
-- ARGV[1]  int  -  how many entries to show at most
--
-- Returns
--   {now_us, limit, declared, in_use, waiting, acquisition, units, left_ms, requested, ...}
--                four for each entry, with the units of that entry; several entries may be of
--                one permit; requested is its since, all its units and description; limit is 0 when
--                none is known
--
-- Guarantees  one consistent view; changes nothing.
-- Twice       the same.
-- Cost        one round trip, O(log n + shown).
-- include clock errors queue units

local show = tonumber(ARGV[1])

local waiting, refused = queue_length(0)
local limit = redis.pcall('ZSCORE', KEYS[1], 'limit')
refused = refused or refusal(limit)
if refused then
  return refused
end
local now_us = server_time_us()
local now_ms = math.floor(now_us / 1000)
local declared = tonumber(redis.call('ZSCORE', KEYS[1], 'declared') or 0)
local in_use = count_units(0, now_ms, 0)
local reply = {now_us, tonumber(limit or 0), declared, in_use, waiting}
for level = 0, 30 do
  local from = level * level_span
  local part = redis.call('ZRANGEBYSCORE', KEYS[1], from + now_ms + 1, from + level_span - 1,
    'WITHSCORES', 'LIMIT', 0, show)
  for i = 1, #part, 2 do
    local acquisition = string.match(part[i], '^(.*)#')
    local requested = redis.pcall('HGET', KEYS[2], acquisition)
    reply[#reply + 1] = acquisition
    reply[#reply + 1] = 2 ^ level
    reply[#reply + 1] = tonumber(part[i + 1]) - from - now_ms
    reply[#reply + 1] = not refusal(requested) and requested or ''
  end
  show = show - #part / 2
end
return reply
