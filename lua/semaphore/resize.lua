-- resize: set the limit. Up, waiters are served; down, nothing is taken away.
--
-- KEYS[1]  zset  redlatch:permits:{name}          entries of permits -> end of their lease; limits
-- KEYS[2]  hash  redlatch:holders:{name}          acquisition -> since, units, description
-- KEYS[3]  zset  redlatch:permits-queue:{name}    waiter -> ticket
-- KEYS[4]  zset  redlatch:permits-alive:{name}    waiter -> end of its heartbeat, server ms
--
-- ARGV[1]  int      -   the new limit
-- ARGV[2]  int      -   the limit that programs pass, which stays accepted
-- ARGV[3]  int      us  void after, server time
-- ARGV[4]  int      us  stamp: when this resize was begun, the same in all its commands; above 0
-- ARGV[5]  int      ms  how long limit and permits are kept after their last use; 0 for ever
-- ARGV[6]  channel  -   redlatch:client: of the waiter that is granted, whose client id follows
--
-- Returns
--   {1, before, more, now_us}    the limit before, 0 if none was known; more is 1 when there is
--                                more for waiters than one call does: call again
--   {0, stamp, now_us}           another resize has this stamp or a later one: nothing changed
--   {-2, now_us}                 arrived after its end: nothing changed
--
-- Guarantees  no permit is taken away; new ones only within the new limit; a resize never
--             undoes one with a later stamp; a refusal leaves the limit as it was; once the limit
--             is set, the call returns no error; only a server that takes writes says that
--             there is a later one.
-- Twice       a copy sets the same limit again and serves waiters. After a resize with a
--             later stamp it changes nothing. If the key is gone, it sets the limit, but
--             never after its end.
-- Cost        one round trip, O(log n).
-- include clock errors queue units permits serve

local limit, requested, void_after_us = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local stamp_us, keep_ms, prefix = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]

local now_us = server_time_us()
if now_us > void_after_us then
  return {-2, now_us}
end
local before, refused = read_limit(0)
if before then
  local last = -tonumber(redis.call('ZSCORE', KEYS[1], 'resized') or 0)
  local declared = tonumber(redis.call('ZSCORE', KEYS[1], 'declared') or 0)
  local mine = stamp_us == last and limit == before and requested == declared
  if stamp_us <= last and not mine then
    return writes_refused(0) or {0, last, now_us}
  end
end
local made = false
if not refused and not before then
  before = 0
  limit, refused, made = read_limit(0, limit, keep_ms)
end
-- The limit comes last: what is refused before it has changed nothing.
refused = refused or keep_permits(0, keep_ms, 0)
  or refusal(redis.pcall('ZADD', KEYS[1], limit, 'limit', requested, 'declared',
    string.format('%.0f', -stamp_us), 'resized'))
if refused then
  if made then
    forget_limit(0)
  end
  return refused
end
local is_queue = has_queue(redis.pcall('ZCARD', KEYS[3]))
local more = serve_after_release(0, now_us, limit, is_queue, keep_ms, prefix)
return {1, before, more, now_us}
