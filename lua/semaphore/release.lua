-- release: give a permit back, or the place in the queue; what is free goes to the next.
--
-- KEYS[1]  zset  redlatch:permits:{name}          entries of permits -> end of their lease; limits
-- KEYS[2]  hash  redlatch:holders:{name}          acquisition -> since, units, description
-- KEYS[3]  zset  redlatch:permits-queue:{name}    waiter -> ticket
-- KEYS[4]  zset  redlatch:permits-alive:{name}    waiter -> end of its heartbeat, server ms
--
-- ARGV[1]  string   -   waiter: <acquisition> <units> <heartbeat ms> <lease ms> <description>
-- ARGV[2]  int      ms  how long limit and permits are kept after their last use; 0 for ever
-- ARGV[3]  channel  -   redlatch:client: of the waiter that is granted, whose client id follows
--
-- Returns
--   {1, more}    it had units, and they are free, or the next one's
--   'free'       the same as {1, 0}: see alone.lua
--   {2, more}    its place in the queue was given up
--   {0, more}    it had neither, or its lease was over; for all three, more is 1 when there is
--                more for the next than one call does: call again
--
-- Guarantees  never touches another acquisition; frees the units also when Redis is out of
--             memory, when the queue is of another type, and when the next cannot be granted;
--             once the units are free or the place given up, the call returns no error;
--             only a server that takes writes says that it had neither; works with KEYS[1]
--             alone, and then leaves the queue to the heartbeats of its waiters.
-- Twice       a copy finds nothing of its own; the copy hands on what is free.
-- Cost        one round trip, O(log n).
-- include clock one_unit

local member, keep_ms, prefix = ARGV[1], tonumber(ARGV[2]), ARGV[3]

-- Most often this is one unit, and nobody stands in the queue.
local now_us = server_time_us()
local now_ms = math.floor(now_us / 1000)
local acquisition, wants = string.match(member, '^(%S+) (%d+) %d+ %d+')
local removed, length
if wants == '1' then
  removed, length = release_one_unit(acquisition, now_ms)
  if length == 0 then
    return 'free'
  end
end

-- include errors queue units permits
local limit
local units, entries, refused = 1, nil, nil
if removed then
  limit = read_limit(0)
else
  limit, entries = read_lowest(redis.pcall('ZRANGE', KEYS[1], '0', '4', 'WITHSCORES'))
  if not limit then
    entries = nil
    limit, refused = read_limit(0)
  end
  if is_other_type(refused) then
    return writes_refused(0) or {0, 0}
  end
  if not refused then
    units, refused = drop_permit(0, acquisition, tonumber(wants), now_ms, entries)
  end
  if refused then
    return refused
  end
end

-- The units are free by now; what goes wrong from here must not make that an error.
if not KEYS[3] and units > 0 then
  return {1, 0}
end
if not KEYS[3] then
  return writes_refused(0) or {0, 0}
end
local is_queue = has_queue(length or redis.pcall('ZCARD', KEYS[3]))
if units > 0 and entries and not entries[3] and not is_queue then
  redis.pcall('HDEL', KEYS[2], acquisition)
  return {1, 0}
end

-- include serve
local queued = units == 0 and is_queue and not refusal(redis.pcall('ZCARD', KEYS[4]))
  and redis.call('ZSCORE', KEYS[3], member)
if queued then
  refused = remove_waiters(0, {member})
  if refused then
    return refused
  end
  is_queue = has_queue(redis.pcall('ZCARD', KEYS[3]))
end
local more = serve_after_release(0, now_us, limit, is_queue, keep_ms, prefix)
forget_holder(0, acquisition)
if units > 0 then
  return {1, more}
end
if queued then
  return {2, more}
end
return writes_refused(0) or {0, more}
