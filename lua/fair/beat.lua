-- beat: renew the heartbeats of waiters, and report the state of each. Many locks of one slot.
--
-- KEYS[4i-3]  hash    <name>                        acquisition, holds
-- KEYS[4i-2]  string  redisson_lock_token:{name}    the last fence given out
-- KEYS[4i-1]  zset    redlatch:queue:{name}         waiter -> ticket
-- KEYS[4i]    zset    redlatch:alive:{name}         waiter -> end of its heartbeat, server ms
--
-- ARGV[1]    int      ms  how long the fence is kept after its last use; 0 for ever
-- ARGV[2]    channel  -   redlatch:client: of the waiter that is granted, whose client id follows
-- ARGV[3]    int      -   1: a waiter that was granted the lock takes it
-- ARGV[i+3]  string   -   waiter: <acquisition> <units> <heartbeat ms> <lease ms> <description>
--
-- Returns
--   {answer, ...}         one for each waiter:
--   {1, fence}            has the lock; for its whole lease, if it takes it, else for as long
--                         as before: heartbeats alone never extend a grant
--   {2, place, length, ttl_ms, holder, description, fence}
--                         queued, as in join; no holder, and 0 for ttl_ms: beat again at once
--   {0}                   neither has the lock nor is queued
--   {3}                   was removed from the queue by an operator
--   {-1}                  refused by the server
--   error WRONGTYPE       where a single waiter is asked about: why it was refused
--   error BADFENCE        likewise
--
-- Guarantees  never queues anybody; a free lock goes to the first waiter that lives; only a
--             server that takes writes says that one is not there.
-- Twice       a copy sets one heartbeat or lease from its arrival.
-- Cost        one round trip, O(waiters log n), and the budget of one call, for all locks.
-- include clock errors budget fence holder grant queue heartbeat head queue_grant

local keep_ms, prefix, take = tonumber(ARGV[1]), ARGV[2], ARGV[3] == '1'
local now_us = server_time_us()
local now_ms = math.floor(now_us / 1000)

-- What is known of each lock, by its key.
local locks = {}

local function read(at)
  local fields, stored = redis.pcall('HGETALL', KEYS[at + 1]), redis.pcall('GET', KEYS[at + 2])
  local length, unreadable = queue_length(at)
  local refused = refusal(fields) or refusal(stored) or unreadable
  if refused then
    return {refused = refused}
  end
  local holder, holds, description = holder_of(fields)
  local fence = last_fence(stored)
  refused = not holds and not_mutex() or not fence and bad_fence()
  return {refused = refused, holder = holder, description = description, fence = fence, length = length}
end

-- Renews the heartbeat of a waiter: of all, before any counts as expired or is granted.
local function note(at, member)
  local lock = locks[KEYS[at + 1]] or read(at)
  locks[KEYS[at + 1]] = lock
  if lock.refused then
    return {-1}
  end
  local acquisition, _, heartbeat_ms, lease_ms = parse_waiter(member)
  if lock.holder == acquisition then
    lock.fence, lock.refused = keep_grant(at, take and lease_ms or 0, lock.fence, now_us, fence_life(keep_ms, lease_ms))
    return lock.refused and {-1} or {1, lock.fence}
  end
  return renew_heartbeat(at, member, heartbeat_ms, now_ms, lock)
end

-- Drops expired waiters, and grants the lock, if it is free, to the first one. Length and ranks
-- of before hold unless somebody left the queue by that.
local function judge(at)
  local lock = locks[KEYS[at + 1]]
  local free, left = not lock.holder, budget.left
  lock.judged = true
  local more = drop_expired(at, now_ms, lock.grace_ms) or lock.more
  if free and not more then
    local grant
    grant, lock.refused = grant_first(at, now_us, lock.grace_ms, keep_ms, prefix, {})
    if grant then
      lock.holder, lock.description, lock.fence = grant.acquisition, grant.description, grant.fence
    end
  end
  if free or budget.left < left then
    lock.length = nil
  end
end

local function place(at, member)
  local acquisition, _, _, lease_ms = parse_waiter(member)
  local lock = locks[KEYS[at + 1]]
  if lock.refused then
    return {-1}
  end
  if lock.holder == acquisition then
    if take then
      redis.call('PEXPIRE', KEYS[at + 1], lease_ms)
    end
    return {1, lock.fence}
  end
  local ttl_ms = lock.holder and redis.call('PTTL', KEYS[at + 1]) or 0
  local rank, length = lock.ranks[member], lock.length
  if not length then
    rank, length = redis.call('ZRANK', KEYS[at + 3], member), redis.call('ZCARD', KEYS[at + 3])
  end
  if not rank then
    return {0}
  end
  return {2, rank + 1, length, ttl_ms, lock.holder or '', lock.description, lock.fence}
end

local answers, why = {}, nil
for i = 1, #KEYS / 4 do
  answers[i] = note(4 * i - 4, ARGV[i + 3])
end
for i = 1, #KEYS / 4 do
  if not answers[i] and not locks[KEYS[4 * i - 3]].judged then
    judge(4 * i - 4)
  end
  answers[i] = answers[i] or place(4 * i - 4, ARGV[i + 3])
  if answers[i][1] == -1 then
    why = locks[KEYS[4 * i - 3]].refused
  end
end
if #answers == 1 and why then
  return why
end
return answers
