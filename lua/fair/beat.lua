-- beat: note that waiters live, and tell each how it stands. Many locks of one slot.
--
-- KEYS[4i-3]  hash    <name>                        acquisition, holds
-- KEYS[4i-2]  string  redisson_lock_token:{name}    the last fence given out
-- KEYS[4i-1]  zset    redlatch:queue:{name}         waiter -> ticket
-- KEYS[4i]    zset    redlatch:alive:{name}         waiter -> end of its heartbeat, server ms
--
-- ARGV[1]     int      ms  how long the fence is kept after its last use; 0 for ever
-- ARGV[2]     channel  -   redlatch:client: of the waiter that is granted, whose client id follows
-- ARGV[2i+1]  string   -   waiter: <acquisition> <units> <heartbeat ms> <about>
-- ARGV[2i+2]  int      ms  lease
--
-- Returns
--   {answer, ...}         one for each waiter:
--   {1, fence}            has the lock, extended to the lease
--   {2, place, length, ttl_ms, holder, about, fence}
--                         queued, as in join
--   {0}                   neither has the lock nor is queued
--   {3}                   was removed from the queue by an operator
--   {-1}                  refused by the server
--
-- Guarantees  never queues anybody, never shortens; a free lock goes to the first waiter
--             that lives.
-- Twice       a copy extends to one heartbeat or lease from its arrival, at most.
-- Cost        one round trip, O(waiters log n).
-- include server_time_us refusal holder_of last_fence next_fence bad_fence store_fence keep_grant write_grant
-- include queue_waiter queue_length queue_grace queue_remove queue_bury queue_head queue_beat queue_tell
-- include grant_next

local keep_ms, prefix = tonumber(ARGV[1]), ARGV[2]
local now_us = server_time_us()
local now_ms = math.floor(now_us / 1000)

local function look(at, member, lease_ms)
  local fields, stored = redis.pcall('HGETALL', KEYS[at + 1]), redis.pcall('GET', KEYS[at + 2])
  local _, unreadable = queue_length(at)
  local fence = not refusal(stored) and last_fence(stored)
  if refusal(fields) or unreadable or not fence then
    return {-1}
  end
  local holder, holds, holder_about = holder_of(fields)
  if not holds then
    return {-1}
  end
  local acquisition, _, heartbeat_ms = queue_waiter(member)
  local refused = false
  if holder == acquisition then
    fence, refused = keep_grant(at, lease_ms, fence, now_us, keep_ms)
    return refused and {-1} or {1, fence}
  end
  if not redis.call('ZSCORE', KEYS[at + 3], member) then
    local removed = redis.call('ZSCORE', KEYS[at + 4], member)
    return removed and tonumber(removed) < 0 and {3} or {0}
  end
  local grace_ms = queue_grace(at, now_ms)
  if queue_beat(at, member, heartbeat_ms, now_ms) then
    return {-1}
  end
  local more = queue_bury(at, now_ms, grace_ms)
  local ttl_ms = redis.call('PTTL', KEYS[at + 1])
  if not holder then
    ttl_ms = 0
    local grant = false
    if not more then
      grant, refused = grant_next(at, now_us, grace_ms, keep_ms, prefix)
    end
    if refused then
      return {-1}
    end
    if grant and grant.acquisition == acquisition then
      redis.call('PEXPIRE', KEYS[at + 1], math.max(grant.ttl_ms, lease_ms))
      return {1, grant.fence}
    end
    if grant then
      holder, holder_about, ttl_ms, fence = grant.acquisition, grant.about, grant.ttl_ms, grant.fence
    end
  end
  local rank, length = redis.call('ZRANK', KEYS[at + 3], member), redis.call('ZCARD', KEYS[at + 3])
  return {2, rank + 1, length, ttl_ms, holder or '', holder_about, fence}
end

local answers = {}
for i = 1, #KEYS / 4 do
  answers[i] = look(4 * i - 4, ARGV[2 * i + 1], tonumber(ARGV[2 * i + 2]))
end
return answers
