-- queue: who waits, in order; a part of it.
--
-- KEYS[1]  zset  redlatch:queue:{name}    waiter -> ticket
-- KEYS[2]  zset  redlatch:alive:{name}    waiter -> end of its heartbeat, server ms
--
-- ARGV[1]  int  -  how many to skip
-- ARGV[2]  int  -  how many to show
--
-- Returns
--   {now_us, length, grace_ms, waiter, ticket, end_ms, ...}    three for each; end_ms is -1 without
--                                                              a heartbeat
--
-- Guarantees  one consistent view; changes nothing.
-- Twice       the same.
-- Cost        one round trip, O(log n + shown).
-- include server_time_us refusal queue_length

local skip, show = tonumber(ARGV[1]), tonumber(ARGV[2])

local length, refused = queue_length(-2)
if refused then
  return refused
end
local grace_ms = tonumber(redis.call('ZSCORE', KEYS[2], 'grace') or 0)
local part = redis.call('ZRANGE', KEYS[1], skip, skip + show - 1, 'WITHSCORES')
local reply = {server_time_us(), length, grace_ms}
for i = 1, #part, 2 do
  reply[#reply + 1] = part[i]
  reply[#reply + 1] = tonumber(part[i + 1])
  reply[#reply + 1] = tonumber(redis.call('ZSCORE', KEYS[2], part[i]) or -1)
end
return reply
