-- beat: renew the heartbeats of waiters, and report the state of each. One slot.
--
-- KEYS[4i-3]  zset  redlatch:permits:{name}          entries of permits -> end of their lease; limits
-- KEYS[4i-2]  hash  redlatch:holders:{name}          acquisition -> since, units, description
-- KEYS[4i-1]  zset  redlatch:permits-queue:{name}    waiter -> ticket
-- KEYS[4i]    zset  redlatch:permits-alive:{name}    waiter -> end of its heartbeat, server ms
--
-- ARGV[1]     int      ms  how long limit and permits are kept after their last use; 0 for ever
-- ARGV[2]     channel  -   redlatch:client: of the waiter that is granted, whose client id follows
-- ARGV[3]     int      -   1: a waiter that was granted its units takes them
-- ARGV[2i+2]  string   -   waiter: <acquisition> <units> <heartbeat ms> <lease ms> <description>
-- ARGV[2i+3]  int      -   limit, where none is known any more
--
-- Returns
--   {answer, ...}         one for each waiter:
--   {1}                   has its units; for its whole lease, if it takes them, else for as
--                         long as before: heartbeats alone never extend a grant
--   {2, position, length, free, limit, next_ms}
--                         queued, as in acquire
--   {0}                   neither has units nor is queued
--   {3}                   was removed from the queue by an operator
--   {4, limit}            queued, and wants more than the limit is now: nobody behind it is
--                         served until it has left
--   {-1}                  refused by the server
--   error WRONGTYPE       where a single waiter is asked about: why it was refused
--
-- Guarantees  never queues anybody; free units go to the first waiters that live; only a server
--             that takes writes says that one is not there.
-- Twice       a copy sets one heartbeat or lease from its arrival.
-- Cost        one round trip, O(waiters log n), and the budget of one call, for all semaphores.
-- include clock errors budget queue heartbeat head units permits serve

local keep_ms, prefix, take = tonumber(ARGV[1]), ARGV[2], ARGV[3] == '1'
local now_us = server_time_us()
local now_ms = math.floor(now_us / 1000)

-- What is done once for all waiters of one semaphore, by its key.
local semaphores = {}

-- Renews the heartbeat of a waiter: of all, before any counts as expired or is served.
local function note(at, member, requested)
  local known = semaphores[KEYS[at + 1]]
  if not known then
    local length, unreadable = queue_length(at)
    known = {refused = unreadable or refusal(redis.pcall('ZCARD', KEYS[at + 1])), length = length}
    semaphores[KEYS[at + 1]] = known
  end
  if known.refused then
    return {-1}
  end
  local acquisition, units, heartbeat_ms, lease_ms = parse_waiter(member)
  local has
  has, known.refused = extend_permit(at, acquisition, units, now_ms, take and lease_ms or 0, keep_ms)
  if known.refused or has then
    return known.refused and {-1} or {1}
  end
  local answer = renew_heartbeat(at, member, heartbeat_ms, now_ms, known)
  if answer then
    return answer
  end
  known.limit, known.refused = read_limit(at, requested, keep_ms)
  return known.refused and {-1}
end

-- Drops what has expired, and serves the queue; no refusal after that is an error. Length and ranks
-- of before hold, unless somebody left the queue, which takes from the budget where any is left.
local function serve(at)
  local known = semaphores[KEYS[at + 1]]
  local limit, grace_ms, left = known.limit, known.grace_ms, budget.left
  local in_use, next_ms = count_units(at, now_ms, 200)
  local free, head_ms = limit - in_use, nil
  local more = drop_expired(at, now_ms, grace_ms) or known.more
  if not more then
    free, more, head_ms, known.refused, known.denied =
      serve_queue(at, free, now_us, grace_ms, limit, keep_ms, prefix, '')
  end
  if free < limit - in_use then
    local done, _, counted_ms = pcall(count_units, at, now_ms, 0)
    next_ms = done and counted_ms or next_ms
  end
  known.served, known.free, known.next_ms = true, free, next_attempt_ms(next_ms, more, head_ms)
  known.changed = budget.left < left or left < 1
end

local function place(at, member)
  local acquisition, units, _, lease_ms = parse_waiter(member)
  local known = semaphores[KEYS[at + 1]]
  if known.changed and extend_permit(at, acquisition, units, now_ms, take and lease_ms or 0, keep_ms) then
    return {1}
  end
  local rank, length = known.ranks[member], known.length
  if known.changed then
    rank = not is_emptied(at) and redis.call('ZRANK', KEYS[at + 3], member)
    length = rank and redis.call('ZCARD', KEYS[at + 3])
  end
  if not rank or known.denied == member then
    return known.refused and {-1} or {0}
  end
  if units > known.limit then
    return {4, known.limit}
  end
  return {2, rank + 1, length, known.free, known.limit, known.next_ms}
end

local answers, why = {}, nil
for i = 1, #KEYS / 4 do
  answers[i] = note(4 * i - 4, ARGV[2 * i + 2], tonumber(ARGV[2 * i + 3]))
end
for i = 1, #KEYS / 4 do
  if not answers[i] and not semaphores[KEYS[4 * i - 3]].served then
    serve(4 * i - 4)
  end
  answers[i] = answers[i] or place(4 * i - 4, ARGV[2 * i + 2])
  if answers[i][1] == -1 then
    why = semaphores[KEYS[4 * i - 3]].refused
  end
end
if #answers == 1 and why then
  return why
end
return answers
