-- list: who waits, in order; a part of it.
--
-- KEYS[1]  zset  redlatch:queue:{name}    waiter -> ticket
-- KEYS[2]  zset  redlatch:alive:{name}    waiter -> end of its heartbeat, server ms
--
-- ARGV[1]  int     -  how many to skip, from the front
-- ARGV[2]  string  -  the ticket behind which to begin, in place of that; empty for the front
-- ARGV[3]  int     -  how many to show; a few more where the next have the ticket of the last
--
-- Returns
--   {now_us, length, grace_ms, behind, waiter, ticket, end_ms, ...}
--                three for each; behind is the ticket of the last, for the next part, and empty
--                where nobody is shown; end_ms is -1 without a heartbeat
--
-- Guarantees  one consistent view; changes nothing; a waiter that stays is in one of the parts,
--             and no waiter is in two.
-- Twice       the same.
-- Cost        one round trip, O(log n + shown).
-- include clock queue

local skip, behind, show = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local length, refused = queue_length(-2)
if refused then
  return refused
end
local grace_ms = tonumber(redis.call('ZSCORE', KEYS[2], 'grace') or 0)
local page = queue_page(-2, skip, behind, show)
local reply = {server_time_us(), length, grace_ms, page[#page] or ''}
for i = 1, #page, 2 do
  reply[#reply + 1] = page[i]
  reply[#reply + 1] = tonumber(page[i + 1])
  reply[#reply + 1] = tonumber(redis.call('ZSCORE', KEYS[2], page[i]) or -1)
end
return reply
