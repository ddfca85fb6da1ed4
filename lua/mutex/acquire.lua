-- acquire: give the lock to one acquisition, or set the holds of the one that has it.
--
-- KEYS[1]  hash    <name>                        acquisition, holds
-- KEYS[2]  string  redisson_lock_token:{name}    the last fence given out
-- KEYS[3]  zset    redlatch:queue:{name}         waiter -> ticket
--
-- ARGV[1]  string  -   acquisition: <client id>:<n>, never used for two grants
-- ARGV[2]  int     ms  lease; 0 in a re-entry: it stays as it is
-- ARGV[3]  int     -   holds: the number meant, not an increment; above 1 is a re-entry
-- ARGV[4]  int     us  void after, server time
-- ARGV[5]  int     ms  how long the fence is kept after its last use; 0 for ever
-- ARGV[6]  string  -   description of the holder, or empty
--
-- Returns
--   {1, fence, now_us}                     held by this acquisition now
--   now_us                                 the same, with now_us as the fence: see alone.lua
--   {0, ttl_ms, holder, description, now_us}     held by another for ttl_ms more; below 0: without end
--   {-1, now_us}                           a re-entry, and the lock is gone or another's
--   {-2, now_us}                           arrived after its end: nothing changed
--   {-3, now_us}                           free, and others stand in its queue: nothing changed;
--                                          send fair/leave, and ask again
--   error WRONGTYPE                        the key is no mutex: nothing changed
--   error BADFENCE                         the stored fence cannot be counted up: nothing changed
--
-- Guarantees  holds, fence and expiry change together or not at all; a re-entry sets
--             exactly the lease, also where the clock was set back and made it longer, and
--             has the fence of its grant, or, when the stored one was lost meanwhile, a new
--             and larger one; only a server that takes writes says that the lock is gone.
-- Twice       a copy finds its own acquisition and reports the same fence; a copy of
--             an earlier count sets that count, which the next command corrects.
-- Cost        one round trip, O(1).
-- include clock alone

local acquisition, lease_ms, holds = ARGV[1], ARGV[2], tonumber(ARGV[3])
local void_after_us, keep_ms, description = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]

local now_us, now_text = server_time_us()
if now_us > void_after_us then
  return {-2, now_us}
end

-- Most often nobody has the lock, and nobody stands in its queue.
local free = redis.pcall('EXISTS', KEYS[1], KEYS[3]) == 0
local granted, stored
if free and holds == 1 then
  granted, stored = grant_alone(acquisition, description, lease_ms, now_us, now_text, keep_ms)
  if granted then
    return now_us
  end
end

-- include errors fence holder grant queue
lease_ms = tonumber(lease_ms)
local holder, holder_holds, holder_description = false, 0, ''
local fence, refused
if not free then
  local fields = redis.pcall('HGETALL', KEYS[1])
  refused = refusal(fields)
  if refused then
    return refused
  end
  holder, holder_holds, holder_description = holder_of(fields)
  if not holder or holder == acquisition then
    local now_stored = redis.pcall('GET', KEYS[2])
    refused = refusal(now_stored)
    if refused then
      return refused
    end
    fence = last_fence(now_stored)
    if not fence then
      return bad_fence()
    end
  end
end

if holder == acquisition then
  fence, refused = keep_grant(0, lease_ms, fence, now_us, keep_ms)
  if not refused and holder_holds ~= holds then
    refused = refusal(redis.pcall('HSET', KEYS[1], acquisition, holds))
  end
  return refused or {1, fence, now_us}
end

if holds > 1 then
  return writes_refused(0) or {-1, now_us}
end
if not holder_holds then
  return not_mutex()
end
if holder then
  return {0, redis.call('PTTL', KEYS[1]), holder, holder_description, now_us}
end
if free then
  fence, refused = grow_fence(0, now_us, keep_ms, stored)
else
  local queue
  queue, refused = has_queue(redis.pcall('ZCARD', KEYS[3]))
  if queue then
    return {-3, now_us}
  end
  if not refused then
    fence, refused = take_fence(0, now_us, keep_ms)
  end
end
refused = refused or write_grant(0, acquisition, description, lease_ms)
return refused or {1, fence, now_us}
