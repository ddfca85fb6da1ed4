-- join: give the lock to a waiter if it is its turn, else queue it.
--
-- KEYS[1]  hash    <name>                        acquisition, holds
-- KEYS[2]  string  redisson_lock_token:{name}    the last fence given out
-- KEYS[3]  zset    redlatch:queue:{name}         waiter -> ticket
-- KEYS[4]  zset    redlatch:alive:{name}         waiter -> end of its heartbeat, server ms
--
-- ARGV[1]  string   -   waiter: <acquisition> <units> <heartbeat ms> <lease ms> <description>
-- ARGV[2]  int      -   ticket from before; 0 for a new one, below 0 to be never queued
-- ARGV[3]  int      us  void after, server time
-- ARGV[4]  int      ms  how long the fence is kept after its last use; 0 for ever
-- ARGV[5]  channel  -   redlatch:client: of the waiter that is granted, whose client id follows
--
-- Returns
--   {1, fence, now_us}    held by this waiter's acquisition now
--   now_us                the same, with now_us as the fence: see alone.lua
--   {2, place, length, ttl_ms, holder, description, fence, ticket, now_us}
--                         queued; held by another, who got it under that fence, for ttl_ms
--                         more; below 0: without end; no holder: expired waiters are being dropped
--   {0, place, length, ttl_ms, holder, description, fence, now_us}
--                         not queued, as was asked: the place it would have had
--   {-2, now_us}          arrived after its end: nothing changed
--   error WRONGTYPE       the key is no mutex: not queued
--   error BADFENCE        the stored fence cannot be counted up: not queued
--
-- Guarantees  grants in the order of tickets among those in the queue; a free lock goes
--             to the first of them that lives, whoever sends the command; a refusal leaves no
--             lock and no place that this waiter had not before.
-- Twice       a copy finds its own acquisition or its own place. After both are gone, it
--             queues a waiter that has left, for one heartbeat; never after its end.
-- Cost        one round trip, O(log n).
-- include clock alone

local member, ticket, void_after_us = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local keep_ms, prefix = tonumber(ARGV[4]), ARGV[5]

local now_us, now_text = server_time_us()
if now_us > void_after_us then
  return {-2, now_us}
end

-- Most often nobody has the lock, and nobody stands in its queue.
local acquisition, lease_ms, description = string.match(member, '^(%S+) %d+ %d+ (%d+) ?(.*)$')
local present = redis.pcall('EXISTS', KEYS[1], KEYS[3], KEYS[4])
local granted, replaced
if present == 0 then
  granted, replaced = grant_alone(acquisition, description, lease_ms, now_us, now_text, keep_ms)
  if granted then
    return now_us
  end
end

-- include errors fence holder grant grace heartbeat head queue queue_grant
local fence, refused
if present == 0 then
  fence, refused = grow_fence(0, now_us, keep_ms, replaced)
  refused = refused or write_grant(0, acquisition, description, lease_ms)
  return refused or {1, fence, now_us}
end

local fields, stored = redis.pcall('HGETALL', KEYS[1]), redis.pcall('GET', KEYS[2])
-- Where only the lock is there, nobody stands in the queue, and nothing of it needs to be read.
local alone, _, unreadable = present == 1 and #fields > 0, nil, nil
if not alone then
  _, unreadable = queue_length(0)
end
refused = refusal(fields) or refusal(stored) or unreadable
if refused then
  return refused
end
lease_ms = tonumber(lease_ms)
local holder, holds, holder_description = holder_of(fields)
if not holds then
  return not_mutex()
end
fence = last_fence(stored)
if not fence then
  return bad_fence()
end
if holder == acquisition then
  fence, refused = keep_grant(0, lease_ms, fence, now_us, keep_ms)
  return refused or {1, fence, now_us}
end

local now_ms = math.floor(now_us / 1000)
local grace_ms, more = 0, false
if not alone then
  grace_ms, more = grace_end(0, now_ms)
  more = drop_expired(0, now_ms, grace_ms) or more
end
local ttl_ms = holder and redis.call('PTTL', KEYS[1]) or 0
if not holder then
  local first
  if not more then
    first, _, more = first_waiter(0, now_ms, grace_ms)
  end
  if first == member or not first and not more then
    fence, refused = take_fence(0, now_us, keep_ms)
    if first and not refused then
      refused = grant_waiter(0, member, acquisition, description, lease_ms, {})
    else
      refused = refused or write_grant(0, acquisition, description, lease_ms)
    end
    return refused or {1, fence, now_us}
  end
  local grant = false
  if not more then
    grant, refused = grant_first(0, now_us, grace_ms, keep_ms, prefix, {})
  end
  if refused then
    return refused
  end
  if grant then
    holder, holder_description, ttl_ms, fence = grant.acquisition, grant.description, grant.ttl_ms, grant.fence
  end
end

local rank, length, joined = false, 0, false
if ticket >= 0 then
  ticket, refused, joined = join_queue(0, member, ticket, now_us, alone)
  if refused then
    return refused
  end
  rank, length = 0, 1
end
if not alone and (joined or not is_emptied(0)) then
  rank, length = redis.pcall('ZRANK', KEYS[3], member), redis.pcall('ZCARD', KEYS[3])
  refused = refusal(rank) or refusal(length)
  if refused then
    if joined then
      remove_waiters(0, {member})
    end
    return refused
  end
end
if rank then
  return {2, rank + 1, length, ttl_ms, holder or '', holder_description, fence, ticket, now_us}
end
return {0, length + 1, length, ttl_ms, holder or '', holder_description, fence, now_us}
