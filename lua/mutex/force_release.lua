-- force_release: end a lock whoever has it. For operators.
--
-- KEYS[1]  hash  <name>                   acquisition, holds
-- KEYS[2]  zset  redlatch:queue:{name}    waiter -> ticket
--
-- ARGV[1]  string   -  the acquisition that is expected to have it; empty for any
-- ARGV[2]  channel  -  redisson_lock__channel:{name}, gets "0" when the lock is free
-- ARGV[3]  int      -  1 in a cluster, where Redisson listens to the shard's channel of that name
--
-- Returns
--   {1, holder, queue}    free now, this acquisition had it; queue is 1 when others stand in its
--                         queue, and were not notified: send fair/leave
--   {0}                   nobody had it: nothing changed
--   {-1, holder}          another than the expected one has it: nothing changed
--   error WRONGTYPE       the key is no mutex: nothing changed
--
-- Guarantees  the victim's next renewal finds its lock gone; waiters are notified; only a server
--             that takes writes says that nothing was changed.
-- Twice       a copy finds nothing, or with an expected holder another one.
-- Cost        one round trip, O(1).
-- include errors holder notify queue

local expected, channel, in_cluster = ARGV[1], ARGV[2], tonumber(ARGV[3])

local fields = redis.pcall('HGETALL', KEYS[1])
local refused = refusal(fields)
if refused then
  return refused
end
local holder, holds = holder_of(fields)
if not holds then
  return not_mutex()
end
if not holder then
  return writes_refused(0) or {0}
end
if expected ~= '' and holder ~= expected then
  return writes_refused(0) or {-1, holder}
end
refused = refusal(redis.pcall('DEL', KEYS[1]))
if refused then
  return refused
end
if has_queue(redis.pcall('ZCARD', KEYS[2])) then
  return {1, holder, 1}
end
notify_free(channel, in_cluster)
return {1, holder, 0}
