-- beat: waiters of one slot live; hear how each stands.
--
-- KEYS[4i-3]  zset  redlatch:permits:{name}          entries of permits -> end of their lease; limits
-- KEYS[4i-2]  hash  redlatch:holders:{name}          acquisition -> since, units, what it says of itself
-- KEYS[4i-1]  zset  redlatch:permits-queue:{name}    waiter -> ticket
-- KEYS[4i]    zset  redlatch:permits-alive:{name}    waiter -> end of its heartbeat, server ms
--
-- ARGV[1]     int      ms  how long limit and permits are kept after their last use; 0 for ever
-- ARGV[2]     channel  -   redlatch:client: of the waiter that is granted, whose client id follows
-- ARGV[3i]    string   -   waiter: <acquisition> <units> <heartbeat ms> <about>
-- ARGV[3i+1]  int      ms  lease
-- ARGV[3i+2]  int      -   limit, where none is known any more
--
-- Returns
--   {answer, ...}         one for each waiter:
--   {1}                   has its units, for the whole lease
--   {2, position, length, free, limit, next_ms}
--                         queued, as in acquire
--   {0}                   neither has units nor is queued, or wants more than the limit is now
--   {3}                   was removed from the queue by an operator
--   {-1}                  refused by the server
--   error WRONGTYPE       where a single waiter is asked about: why it was refused
--
-- Guarantees  never queues anybody, never shortens; free units go to the first waiters that live.
-- Twice       a copy extends to one heartbeat or lease from its arrival, at most.
-- Cost        one round trip, O(waiters log n).
-- include server_time_us refusal permits_keep permits_limit permits_sweep permits_look permits_extend permits_drop
-- include permits_write queue_waiter queue_length queue_grace queue_remove queue_bury queue_head queue_beat queue_note
-- include queue_tell permits_serve

local keep_ms, prefix = tonumber(ARGV[1]), ARGV[2]
local now_us = server_time_us()
local now_ms = math.floor(now_us / 1000)

-- What is done once for all waiters of one semaphore, by its key.
local semaphores = {}

-- Notes that a waiter lives: all of them, before anybody is taken for dead or served.
local function note(at, member, lease_ms, said)
  local known = semaphores[KEYS[at + 1]]
  if not known then
    local _, unreadable = queue_length(at)
    known = {refused = unreadable or refusal(redis.pcall('ZCARD', KEYS[at + 1]))}
    semaphores[KEYS[at + 1]] = known
  end
  if known.refused then
    return {-1}
  end
  local acquisition, units, heartbeat_ms = queue_waiter(member)
  local has
  has, known.refused = permits_extend(at, acquisition, units, now_ms, now_ms + lease_ms)
  if known.refused or has then
    return known.refused and {-1} or {1}
  end
  local answer = queue_note(at, member, heartbeat_ms, now_ms, known)
  if answer then
    return answer
  end
  known.limit, known.refused = permits_limit(at, said, keep_ms)
  return known.refused and {-1}
end

local function serve(at)
  local known = semaphores[KEYS[at + 1]]
  local limit, grace_ms = known.limit, known.grace_ms
  local in_use, next_ms = permits_look(at, now_ms, 200)
  local free, _, refused = limit - in_use, false, false
  if not queue_bury(at, now_ms, grace_ms) then
    free, _, refused = permits_serve(at, free, now_us, grace_ms, limit, keep_ms, prefix, '')
    _, next_ms = permits_look(at, now_ms, 0)
  end
  known.served, known.refused, known.free, known.next_ms = true, refused, free, next_ms
end

local function place(at, member, lease_ms)
  local acquisition, units = queue_waiter(member)
  local known = semaphores[KEYS[at + 1]]
  if permits_extend(at, acquisition, units, now_ms, now_ms + lease_ms) then
    return {1}
  end
  if units > known.limit then
    queue_remove(at, member)
  end
  local rank, length = redis.call('ZRANK', KEYS[at + 3], member), redis.call('ZCARD', KEYS[at + 3])
  if not rank then
    return known.refused and {-1} or {0}
  end
  return {2, rank + 1, length, known.free, known.limit, known.next_ms}
end

local answers, why = {}, nil
for i = 1, #KEYS / 4 do
  answers[i] = note(4 * i - 4, ARGV[3 * i], tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2]))
end
for i = 1, #KEYS / 4 do
  if not answers[i] and not semaphores[KEYS[4 * i - 3]].served then
    serve(4 * i - 4)
  end
  answers[i] = answers[i] or place(4 * i - 4, ARGV[3 * i], tonumber(ARGV[3 * i + 1]))
  if answers[i][1] == -1 then
    why = semaphores[KEYS[4 * i - 3]].refused
  end
end
if #answers == 1 and why then
  return why
end
return answers
