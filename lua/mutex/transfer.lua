-- transfer: hand the lock from one acquisition to the next of the same client.
--
-- KEYS[1]  hash    <name>                        acquisition, holds
-- KEYS[2]  string  redisson_lock_token:{name}    the last fence given out
--
-- ARGV[1]  string  -   from: the acquisition that ends
-- ARGV[2]  string  -   to: the acquisition that begins
-- ARGV[3]  int     ms  lease
-- ARGV[4]  int     us  void after, server time
-- ARGV[5]  int     ms  how long the fence is kept after its last use; 0 for ever
--
-- Returns
--   {1, fence, now_us}    held by "to" now
--   {-1, now_us}          held by neither: nothing changed
--   {-2, now_us}          arrived after its end: nothing changed
--   error BADFENCE        the stored fence cannot be counted up: nothing changed
--
-- Guarantees  the lock is never free in between; the new fence is larger; works
--             when Redis is out of memory; what the holder says of itself stays.
-- Twice       a copy finds "to" and reports the same fence; once "to" is gone too, nothing.
-- Cost        one round trip, O(1).
-- include server_time_us refusal holder_of next_fence

local from, to, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local void_after_us, keep_ms = tonumber(ARGV[4]), tonumber(ARGV[5])

local now_us = server_time_us()
if now_us > void_after_us then
  return {-2, now_us}
end

local fields = redis.pcall('HGETALL', KEYS[1])
local refused = refusal(fields)
if refused then
  return refused
end
local holder = holder_of(fields)
if holder ~= from and holder ~= to then
  return {-1, now_us}
end
local stored = redis.pcall('GET', KEYS[2])
refused = refusal(stored)
if refused then
  return refused
end
if holder == to then
  return {1, tonumber(stored or 0), now_us}
end

local fence = next_fence(stored, now_us)
if not fence then
  return redis.error_reply('BADFENCE the stored fence of this lock cannot be counted up')
end
-- HDEL first: the write that Redis accepts when it is out of memory.
refused = refusal(redis.pcall('HDEL', KEYS[1], from))
if refused then
  return refused
end
redis.call('HSET', KEYS[1], to, 1)
redis.call('PEXPIRE', KEYS[1], lease_ms)
if keep_ms > 0 then
  redis.call('SET', KEYS[2], fence, 'PX', keep_ms)
else
  redis.call('SET', KEYS[2], fence)
end
return {1, fence, now_us}
