-- force_release: end one permit, whoever has it; its units go to the next. For operators.
--
-- KEYS[1]  zset  redlatch:permits:{name}          entries of permits -> end of their lease; limits
-- KEYS[2]  hash  redlatch:holders:{name}          acquisition -> since, units, description
-- KEYS[3]  zset  redlatch:permits-queue:{name}    waiter -> ticket
-- KEYS[4]  zset  redlatch:permits-alive:{name}    waiter -> end of its heartbeat, server ms
--
-- ARGV[1]  string   -   the acquisition to end
-- ARGV[2]  int      ms  how long limit and permits are kept after their last use; 0 for ever
-- ARGV[3]  channel  -   redlatch:client: of the waiter that is granted, whose client id follows
--
-- Returns
--   {1, units, more}    that many units are free now, or the next one's
--   {0, units, more}    it had none; for both, more is 1 when there is more for the next than one
--                       call does: call again
--
-- Guarantees  the victim's next renewal finds its permit gone; no other is touched; once the units
--             are free, the call returns no error; only a server that takes writes says that it
--             had none.
-- Twice       a copy finds nothing.
-- Cost        one round trip, O(log n).
-- include clock errors queue units permits serve

local acquisition, keep_ms, prefix = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local now_us = server_time_us()
local limit, refused = read_limit(0)
local units = 0
if not refused then
  units, refused = drop_permit(0, acquisition, nil, math.floor(now_us / 1000))
end
if refused then
  return refused
end
local is_queue = has_queue(redis.pcall('ZCARD', KEYS[3]))
local more = serve_after_release(0, now_us, limit, is_queue, keep_ms, prefix)
forget_holder(0, acquisition)
if units > 0 then
  return {1, units, more}
end
return writes_refused(0) or {0, 0, more}
