-- release: give back one hold, or the lock with the last one.
--
-- KEYS[1]  hash  <name>                   acquisition, holds
-- KEYS[2]  zset  redlatch:queue:{name}    waiter -> ticket
--
-- ARGV[1]  string   -   acquisition
-- ARGV[2]  int      -   holds left: the number meant, not a decrement; 0 frees the lock
-- ARGV[3]  channel  -   redisson_lock__channel:{name}, gets "0" when the lock is free
-- ARGV[4]  int      -   1 in a cluster, where Redisson listens to the shard's channel of that name
-- ARGV[5]  int      us  void after, server time; 0 holds left are never void
--
-- Returns
--   {2, now_us}          held with that many holds
--   {1, receivers, queue}
--                        free now, and that many subscribers were notified, -1 if the user may not
--                        publish; queue is 1 when its queue has waiters, and nobody was notified:
--                        send fair/leave
--   'free'               the same as {1, 0, 0}: see alone.lua
--   {0}                  not this acquisition's: nothing changed
--   {-2, now_us}         holds are left, and it arrived after its end: nothing changed
--
-- Guarantees  never touches another acquisition; works when Redis is out of memory; only a
--             server that takes writes says that the lock is not this acquisition's; works
--             without KEYS[2], and then leaves a queue to the heartbeats of its waiters.
-- Twice       a copy sets the same number, or finds nothing. A copy of an earlier number sets that
--             number before its end, and the client then sends the right one.
-- Cost        one round trip, O(1).
-- include alone

local acquisition, holds_left = ARGV[1], tonumber(ARGV[2])
local channel, in_cluster, void_after_us = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

-- Most often this is the last hold, and nobody stands in the queue.
local receivers, mine, length, deleted
if holds_left == 0 then
  receivers, mine, length, deleted = release_alone(acquisition, 2, channel, in_cluster)
  if receivers then
    return receivers == 0 and 'free' or {1, receivers, 0}
  end
else
  mine = redis.pcall('HEXISTS', KEYS[1], acquisition)
end

-- include errors clock notify queue
if mine == 0 or is_other_type(mine) then
  return writes_refused(0) or {0}
end
local refused = refusal(mine)
if refused then
  return refused
end

if holds_left > 0 then
  local now_us = server_time_us()
  if now_us > void_after_us then
    return {-2, now_us}
  end
  -- HDEL of a field that nobody has: Redis accepts it when out of memory, and
  -- then the HSET behind it too.
  refused = refusal(redis.pcall('HDEL', KEYS[1], ''))
  if refused then
    return refused
  end
  redis.call('HSET', KEYS[1], acquisition, holds_left)
  return {2, now_us}
end

refused = refusal(deleted or redis.pcall('DEL', KEYS[1]))
if refused then
  return refused
end
if length and has_queue(length) then
  return {1, 0, 1}
end
receivers = notify_free(channel, in_cluster)
return {1, receivers, 0}
