-- resize: set the limit. Up, waiters are served; down, nothing is taken away.
--
-- KEYS[1]  zset  redlatch:permits:{name}          entries of permits -> end of their lease; limits
-- KEYS[2]  hash  redlatch:holders:{name}          acquisition -> since, units, what it says of itself
-- KEYS[3]  zset  redlatch:permits-queue:{name}    waiter -> ticket
-- KEYS[4]  zset  redlatch:permits-alive:{name}    waiter -> end of its heartbeat, server ms
--
-- ARGV[1]  int      -   the new limit
-- ARGV[2]  int      -   what programs say is the limit: that goes on being accepted
-- ARGV[3]  int      us  void after, server time
-- ARGV[4]  int      ms  how long limit and permits are kept after their last use; 0 for ever
-- ARGV[5]  channel  -   redlatch:client: of the waiter that is granted, whose client id follows
--
-- Returns
--   {1, before, more, now_us}    the limit before, 0 if none was known; more is 1 when there is
--                                more for waiters than one call does: call again
--   {-2, now_us}                 arrived after its end: nothing changed
--
-- Guarantees  no permit is taken away; new ones only within the new limit.
-- Twice       the same limit, also when another was set since the first; late, past its
--             end, nothing.
-- Cost        one round trip, O(log n).
-- include budget server_time_us refusal permits_keep permits_limit permits_sweep permits_look permits_drop
-- include permits_write queue_waiter queue_length queue_clip queue_grace queue_remove queue_bury queue_head
-- include queue_tell permits_serve permits_pass

local limit, said, void_after_us = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local keep_ms, prefix = tonumber(ARGV[4]), ARGV[5]

local now_us = server_time_us()
if now_us > void_after_us then
  return {-2, now_us}
end
local before, refused = permits_limit(0)
if not refused and not before then
  before = 0
  limit, refused = permits_limit(0, limit, keep_ms)
end
refused = refused or refusal(redis.pcall('ZADD', KEYS[1], limit, 'limit', said, 'declared'))
  or permits_keep(0, keep_ms, 0)
if refused then
  return refused
end
local more = permits_pass(0, now_us, limit, keep_ms, prefix)
return {1, before, more, now_us}
