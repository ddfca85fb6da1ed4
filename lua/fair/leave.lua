-- leave: give the lock back, or the place in the queue; the lock goes to the next.
--
-- KEYS[1]  hash    <name>                        acquisition, holds
-- KEYS[2]  string  redisson_lock_token:{name}    the last fence given out
-- KEYS[3]  zset    redlatch:queue:{name}         waiter -> ticket
-- KEYS[4]  zset    redlatch:alive:{name}         waiter -> end of its heartbeat, server ms
--
-- ARGV[1]  string   -   waiter: <acquisition> <units> <heartbeat ms> <lease ms> <description>
-- ARGV[2]  channel  -   redisson_lock__channel:{name}, gets "0" when the lock is free
-- ARGV[3]  int      ms  how long the fence is kept after its last use; 0 for ever
-- ARGV[4]  channel  -   redlatch:client: of the waiter that is granted, whose client id follows
-- ARGV[5]  int      -   1 in a cluster, where Redisson listens to the shard's channel of that name
--
-- Returns
--   {1, receivers, more}
--                       the lock was its own and is free, or the next one's; that many were notified,
--                       -1 if the user may not publish
--   'free'              the same as {1, 0, 0}: see alone.lua
--   {2, receivers, more}
--                       its place in the queue was given up
--   {0, receivers, more}
--                       it had neither; for all three, more is 1 when the lock is free and there
--                       were more expired waiters than one call drops: call again
--
-- Guarantees  never touches another acquisition; frees the lock also when Redis is out of
--             memory, when the queue is of another type, and when the next cannot be granted;
--             once the lock is free or the place given up, the call returns no error;
--             only a server that takes writes says that it had neither.
-- Twice       a copy finds nothing of its own; if the lock is free, the copy hands it on.
-- Cost        one round trip, O(log n).
-- include alone

local member, channel, keep_ms, prefix = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local in_cluster = tonumber(ARGV[5])

-- Most often nobody stands in the queue.
local acquisition = string.match(member, '^(%S+) %d+ %d+ %d+')
local receivers, mine, length, deleted = release_alone(acquisition, 3, channel, in_cluster)
if receivers then
  return receivers == 0 and 'free' or {1, receivers, 0}
end

-- include errors notify queue queue_grant
if is_other_type(mine) then
  mine = 0
end
local refused = refusal(mine) or refusal(deleted)
if refused then
  return refused
end

if deleted then
  receivers = notify_free(channel, in_cluster)
  return {1, receivers, 0}
end
local more
local is_queue = has_queue(length or redis.pcall('ZCARD', KEYS[3]))
if mine == 1 then
  receivers, more, refused = hand_on(0, redis.pcall('HGETALL', KEYS[1]), is_queue, channel, in_cluster, keep_ms, prefix)
  return refused or {1, receivers, more}
end

is_queue = is_queue and not refusal(redis.pcall('ZCARD', KEYS[4]))
local queued = is_queue and redis.call('ZSCORE', KEYS[3], member)
if queued then
  refused = remove_waiters(0, {member})
  if refused then
    return refused
  end
end
receivers, more = 0, 0
if redis.pcall('EXISTS', KEYS[1]) == 0 then
  receivers, more = hand_on(0, {}, is_queue, channel, in_cluster, keep_ms, prefix)
end
if queued then
  return {2, receivers, more}
end
return writes_refused(0) or {0, receivers, more}
