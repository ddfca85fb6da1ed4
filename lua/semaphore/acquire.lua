-- acquire: give units to a waiter if they are free and it is its turn, else queue it.
--
-- KEYS[1]  zset  redlatch:permits:{name}          entries of permits -> end of their lease; limits
-- KEYS[2]  hash  redlatch:holders:{name}          acquisition -> since, units, description
-- KEYS[3]  zset  redlatch:permits-queue:{name}    waiter -> ticket
-- KEYS[4]  zset  redlatch:permits-alive:{name}    waiter -> end of its heartbeat, server ms
--
-- ARGV[1]  string   -   waiter: <acquisition> <units> <heartbeat ms> <lease ms> <description>
-- ARGV[2]  int      -   ticket from before; 0 for a new one, below 0 to be never queued
-- ARGV[3]  int      us  void after, server time
-- ARGV[4]  int      -   limit
-- ARGV[5]  int      ms  how long limit and permits are kept after their last use; 0 for ever
-- ARGV[6]  channel  -   redlatch:client: of the waiter that is granted, whose client id follows
--
-- Returns
--   {1, now_us}           this acquisition has its units now
--   now_us                the same: see alone.lua
--   {2, position, length, free, limit, next_ms, ticket, now_us}
--                         queued; beat again in next_ms: when the next lease ends, or the first
--                         waiter, which does not fit, counts as expired; 0 while more is to be
--                         dropped than one call may; below 0: there is nothing to wait for
--   {0, position, length, free, limit, next_ms, now_us}
--                         not queued, as was asked: the place it would have had
--   {-2, now_us}          arrived after its end: nothing changed
--   {-3, limit, declared, now_us}
--                         its limit is neither of these: nothing changed
--   {-4, limit, now_us}   wants more units than the limit: nothing changed
--
-- Guarantees  never more units than the limit; units go to waiters in the order of tickets,
--             and to nobody before them, whoever sends the command; a refusal leaves no units,
--             no place and no limit that were not there before; only a server that takes writes
--             says that the limit is another, or too low.
-- Twice       a copy finds its own permit or its own place. After both are gone, it takes
--             units or a place for which nobody waits any more; never after its end.
-- Cost        one round trip, O(log n).
-- include clock queue one_unit

local member, ticket, void_after_us = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local requested, keep_ms, prefix = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]

local now_us, now_text = server_time_us()
if now_us > void_after_us then
  return {-2, now_us}
end

-- Most often somebody wants one unit, and nobody stands in the queue. The server makes each function anew
-- in each call, so the other cases have theirs behind that.
local acquisition, units, _, lease_ms, description = parse_waiter(member)
local alone = redis.pcall('EXISTS', KEYS[3], KEYS[4]) == 0
local written, kept, lowest
if alone and units == 1 then
  written, kept, lowest = grant_one_unit(acquisition, description, lease_ms, now_us, now_text, requested, keep_ms)
  if kept then
    return now_us
  end
end

-- include units permits
local limit, entries = read_lowest(lowest or redis.pcall('ZRANGE', KEYS[1], '0', '4', 'WITHSCORES'))
if written then
  return keep_new_permit(0, acquisition, units, lease_ms, keep_ms) or {1, now_us}
end
if alone and limit == requested and not entries[1] and units <= limit then
  local refused = write_permit(0, acquisition, units, description, now_us, lease_ms, keep_ms)
  return refused or {1, now_us}
end

-- include errors grace heartbeat head serve

local length, refused, made, joined = 0
if not alone then
  length, refused = queue_length(0)
  if refused then
    return refused
  end
end
local nobody_waits = length == 0
if not limit then
  entries = nil
  limit, refused, made = read_limit(0, requested, keep_ms)
  if refused then
    return refused
  end
end
if limit ~= requested then
  local declared = tonumber(redis.call('ZSCORE', KEYS[1], 'declared') or 0)
  if declared ~= requested then
    return writes_refused(0) or {-3, limit, declared, now_us}
  end
end
local now_ms = math.floor(now_us / 1000)
local has
has, refused = extend_permit(0, acquisition, units, now_ms, lease_ms, keep_ms)
if refused or has then
  return refused or {1, now_us}
end
if units > limit then
  return writes_refused(0) or {-4, limit, now_us}
end

-- Grants the units, or queues the waiter, and returns the answer.
local function grant_or_queue()
  local in_use, next_ms = count_units(0, now_ms, 200, entries)
  local free, more, head_ms = limit - in_use, false, false
  if length > 0 then
    local grace_ms
    grace_ms, more = grace_end(0, now_ms)
    if ticket >= 0 then
      ticket, refused, joined = join_queue(0, member, ticket, now_us)
      if refused then
        return refused
      end
    end
    more = drop_expired(0, now_ms, grace_ms) or more
    if not more then
      local denied
      free, more, head_ms, refused, denied = serve_queue(0, free, now_us, grace_ms, limit, keep_ms, prefix, acquisition)
      if denied == member then
        return refused
      end
    end
    if free < limit - in_use then
      if extend_permit(0, acquisition, units, now_ms, lease_ms, keep_ms) then
        return {1, now_us}
      end
      local _
      _, next_ms = count_units(0, now_ms, 0)
    end
    next_ms = next_attempt_ms(next_ms, more, head_ms)
    length = is_emptied(0) and 0 or redis.call('ZCARD', KEYS[3])
  end
  if length == 0 and not more and units <= free then
    refused = write_permit(0, acquisition, units, description, now_us, lease_ms, keep_ms)
    return refused or {1, now_us}
  end

  if ticket < 0 then
    return {0, length + 1, length, free, limit, next_ms, now_us}
  end
  if length == 0 then
    ticket, refused, joined = join_queue(0, member, ticket, now_us, alone)
    if refused then
      return refused
    end
    length = 1
  end
  local rank = alone and 0 or redis.call('ZRANK', KEYS[3], member)
  if not rank then
    return refused
  end
  return {2, rank + 1, length, free, limit, next_ms, ticket, now_us}
end

-- If Redis refuses a command of that, the call takes back what it has written for its own waiter.
local done, reply = pcall(grant_or_queue)
refused = done and refusal(reply) or not done and caught(reply)
if refused then
  if joined then
    remove_waiters(0, {member})
  end
  if made and nobody_waits then
    forget_limit(0)
  end
  return refused
end
return reply
