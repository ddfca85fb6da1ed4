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
--             when Redis is out of memory; the description stays;
--             a refusal leaves the lock with "from"; only a server that takes writes says
--             that neither has it.
-- Twice       a copy finds "to" and sets its lease again, because a client that sends again
--             counts trust from then. It reports the same fence, or a larger one when the
--             stored one was lost. Once "to" is gone too, it changes nothing.
-- Cost        one round trip, O(1).
-- include clock errors fence holder grant

local from, to, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local void_after_us, keep_ms = tonumber(ARGV[4]), tonumber(ARGV[5])

local now_us = server_time_us()
if now_us > void_after_us then
  return {-2, now_us}
end

local fields = redis.pcall('HGETALL', KEYS[1])
local other = is_other_type(fields)
local refused = not other and refusal(fields)
if refused then
  return refused
end
local holder = not other and holder_of(fields)
if holder ~= from and holder ~= to then
  return writes_refused(0) or {-1, now_us}
end
local stored = redis.pcall('GET', KEYS[2])
refused = refusal(stored)
if refused then
  return refused
end
local fence = last_fence(stored)
if not fence or fence >= largest_exact and holder ~= to then
  return bad_fence()
end
if holder == to then
  fence, refused = keep_grant(0, lease_ms, fence, now_us, keep_ms)
  return refused or {1, fence, now_us}
end

-- PEXPIRE first: the write that Redis accepts when it is out of memory, and then
-- the writes behind it too. HDEL last: until then a refusal leaves the lock with
-- "from", and the key never vanishes in between.
refused = refusal(redis.pcall('PEXPIRE', KEYS[1], lease_ms))
if not refused then
  fence, refused = take_fence(0, now_us, keep_ms)
end
refused = refused or refusal(redis.pcall('HSET', KEYS[1], to, '1'))
if refused then
  return refused
end
refused = refusal(redis.pcall('HDEL', KEYS[1], from))
if refused and not refusal(redis.pcall('DEL', KEYS[1])) then
  -- Else both would have the lock, and nobody could release it.
  redis.pcall('HSET', KEYS[1], unpack(fields))
  redis.pcall('PEXPIRE', KEYS[1], lease_ms)
end
return refused or {1, fence, now_us}
