-- force_release: end a lock whoever has it; it goes to the next in the queue. For operators.
--
-- KEYS[1]  hash    <name>                        acquisition, holds
-- KEYS[2]  string  redisson_lock_token:{name}    the last fence given out
-- KEYS[3]  zset    redlatch:queue:{name}         waiter -> ticket
-- KEYS[4]  zset    redlatch:alive:{name}         waiter -> end of its heartbeat, server ms
--
-- ARGV[1]  string   -   the acquisition that is expected to have it; empty for any
-- ARGV[2]  channel  -   redisson_lock__channel:{name}, gets "0" when the lock is free
-- ARGV[3]  int      ms  how long the fence is kept after its last use; 0 for ever
-- ARGV[4]  channel  -   redlatch:client: of the waiter that is granted, whose client id follows
-- ARGV[5]  int      -   1 in a cluster, where Redisson listens to the shard's channel of that name
--
-- Returns
--   {1, holder, more}  free now, or the next one's; this acquisition had it
--   {0, more}          nobody had it; for both, more is 1 when there were more expired waiters than
--                      one call drops: call again, with the same acquisition
--   {-1, holder}       another than the expected one has it: nothing changed
--   error WRONGTYPE    the key is no mutex: nothing changed
--
-- Guarantees  the victim's next renewal finds its lock gone; the next waiter, or those who
--             wait without a queue, are notified; once the lock is free, the call returns no
--             error; only a server that takes writes says that nobody or another had it.
-- Twice       a copy finds another holder than the expected one; without one, it ends whoever
--             has the lock then. If the lock is free, a copy hands it on.
-- Cost        one round trip, O(log n).
-- include errors holder queue queue_grant

local expected, channel, keep_ms, prefix = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local in_cluster = tonumber(ARGV[5])

local fields = redis.pcall('HGETALL', KEYS[1])
local refused = refusal(fields)
if refused then
  return refused
end
local holder, holds = holder_of(fields)
if not holds then
  return not_mutex()
end
if holder and expected ~= '' and holder ~= expected then
  return writes_refused(0) or {-1, holder}
end
local length, unreadable = queue_length(0)
local is_queue, _, more = not unreadable and length > 0
_, more, refused = hand_on(0, fields, is_queue, channel, in_cluster, keep_ms, prefix)
if refused then
  return refused
end
if holder then
  return {1, holder, more}
end
return writes_refused(0) or {0, more}
