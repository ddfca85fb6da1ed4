-- remove: take a waiter out of the queue, and let it know. For operators.
--
-- KEYS[1]  zset  redlatch:queue:{name}    waiter -> ticket
-- KEYS[2]  zset  redlatch:alive:{name}    waiter -> end of its heartbeat, server ms
--
-- ARGV[1]  string   -  waiter: <acquisition> <units> <heartbeat ms> <lease ms> <description>
-- ARGV[2]  channel  -  redlatch:client: of the waiter, whose client id follows
--
-- Returns
--   {1}    removed: a note says so, for an hour and two heartbeats; the next beat of the
--          waiter finds it, instead of queueing again
--   {0}    it did not wait: nothing changed
--
-- Guarantees  a lock that was granted meanwhile is not touched; once the waiter is out of the
--             queue, the call returns no error; only a server that takes writes says that it did
--             not wait.
-- Twice       a copy finds the note, and says that it was removed.
-- Cost        one round trip, O(log n).
-- include clock errors notify queue

local member, prefix = ARGV[1], ARGV[2]
local now_ms = math.floor(server_time_us() / 1000)

local length, refused = queue_length(-2)
if refused then
  return refused
end
if not redis.call('ZSCORE', KEYS[1], member) then
  local note = redis.call('ZSCORE', KEYS[2], member)
  if note and tonumber(note) < 0 then
    return {1}
  end
  return writes_refused(0) or {0}
end
refused = refusal(redis.pcall('ZREM', KEYS[1], member))
if refused then
  return refused
end
-- The note: its end, made negative, so that it is nobody's heartbeat. Operators write
-- few; one takes some hundred bytes. It takes the place of the heartbeat, so that the key never
-- vanishes: a node that gives the slot away would refuse to write it again.
local acquisition, _, heartbeat_ms = parse_waiter(member)
local note_ms = 2 * heartbeat_ms + 3600000
if refusal(redis.pcall('ZADD', KEYS[2], -now_ms - note_ms, member)) then
  redis.pcall('ZREM', KEYS[2], member)
end
if length == 1 then
  redis.pcall('ZREM', KEYS[2], 'grace')
end
local left_ms = redis.pcall('PTTL', KEYS[2])
if not refusal(left_ms) and left_ms < note_ms then
  redis.pcall('PEXPIRE', KEYS[2], note_ms)
end
notify_waiter(prefix, acquisition, KEYS[1])
return {1}
