-- transfer: hand the lock from one acquisition to the next: of the same client, or from an exported hold.
--
-- KEYS[1]  hash    <name>                        acquisition, holds
-- KEYS[2]  string  redisson_lock_token:{name}    the last fence given out
--
-- ARGV[1]  string  -   from: the acquisition that ends
-- ARGV[2]  string  -   to: the acquisition that begins
-- ARGV[3]  int     ms  lease
-- ARGV[4]  int     us  void after, server time
-- ARGV[5]  int     ms  how long the fence is kept after its last use; 0 for ever
-- ARGV[6]  string  -   "1" if "from" is an exported hold; else "0"
-- ARGV[7]  string  -   description of the client of "to", which may be empty; used for an exported hold
--
-- Returns
--   {1, fence, now_us}    held by "to" now
--   now_us                the same, with now_us as the fence: see alone.lua
--   {-1, now_us}          held by neither: nothing changed
--   {-2, now_us}          arrived after its end: nothing changed
--   error BADFENCE        the stored fence cannot be counted up: "from" has the lock
--
-- Guarantees  the lock is never free in between; the new fence is larger; works
--             when Redis is out of memory; the description is that of the client of "to"; a refusal
--             leaves the lock with "from", and an exported one with its lease; only a server that takes
--             writes says that neither has it.
-- Twice       a copy finds "to" and sets its lease again, because a client that sends again
--             counts trust from then. It reports the same fence, or a larger one when the
--             stored one was lost. Once "to" is gone too, it changes nothing.
-- Cost        one round trip, O(1).
-- include clock alone

local from, to, lease_ms = ARGV[1], ARGV[2], ARGV[3]
local void_after_us, keep_ms = tonumber(ARGV[4]), tonumber(ARGV[5])
local exported, description = ARGV[6], ARGV[7]

local now_us, now_text = server_time_us()
if now_us > void_after_us then
  return {-2, now_us}
end

-- Most often "from" has the lock, and the fence is kept for long enough. PEXPIRE first: the write that
-- Redis accepts when it is out of memory, and then the writes behind it too. HDEL last: until then a
-- refusal leaves the lock with "from", and the key never vanishes in between.
local mine = redis.pcall('HEXISTS', KEYS[1], from)
local left_ms = exported == '1' and redis.pcall('PTTL', KEYS[1])
local extended = mine == 1 and redis.pcall('PEXPIRE', KEYS[1], lease_ms)
local grown, stored, removed
if extended == 1 and exported == '0' then
  grown, stored = fence_alone(now_us, now_text, keep_ms)
  if grown and type(redis.pcall('HSET', KEYS[1], to, '1')) == 'number' then
    removed = redis.pcall('HDEL', KEYS[1], from)
    if removed == 1 then
      return now_us
    end
  end
end

-- include errors fence holder grant
lease_ms = tonumber(lease_ms)
if mine ~= 1 then
  local fields = redis.pcall('HGETALL', KEYS[1])
  local other = is_other_type(fields)
  local refused = not other and (refusal(mine) or refusal(fields))
  if refused then
    return refused
  end
  if other or holder_of(fields) ~= to then
    return writes_refused(0) or {-1, now_us}
  end
  local last = redis.pcall('GET', KEYS[2])
  refused = refusal(last)
  if refused then
    return refused
  end
  last = last_fence(last)
  if not last then
    return bad_fence()
  end
  last, refused = keep_grant(0, lease_ms, last, now_us, keep_ms)
  return refused or {1, last, now_us}
end

local fence, refused = now_us, refusal(extended)
if not removed then
  if not refused and exported == '1' then
    fence, refused = take_fence(0, now_us, keep_ms)
  elseif not refused then
    fence, refused = grow_fence(0, now_us, keep_ms, stored)
  end
  refused = refused or refusal(redis.pcall('HSET', KEYS[1], to, '1'))
  if refused then
    return restore_lease(0, left_ms, refused)
  end
  removed = redis.pcall('HDEL', KEYS[1], from)
end
refused = refusal(removed)
if refused then
  remove_second(0, to, lease_ms)
  restore_lease(0, left_ms)
elseif exported == '1' and description ~= '' then
  redis.pcall('HSET', KEYS[1], 'redlatch:about', description)
elseif exported == '1' then
  redis.pcall('HDEL', KEYS[1], 'redlatch:about')
end
return refused or {1, fence, now_us}
