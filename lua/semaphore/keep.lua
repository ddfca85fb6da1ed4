-- keep: have Redis keep a permit for a time, with nobody who renews it.
--
-- KEYS[1]  zset  redlatch:permits:{name}    entries of permits -> end of their lease; limits
-- KEYS[2]  hash  redlatch:holders:{name}    acquisition -> since, units, description
--
-- ARGV[1]  string  -   acquisition that ends
-- ARGV[2]  string  -   id of what is kept: kept-<uuid>, the same for all calls for the acquisition
-- ARGV[3]  int     -   number of this call for it, from 1
-- ARGV[4]  int     -   its units
-- ARGV[5]  int     ms  how long to keep the permit
-- ARGV[6]  int     us  void after, server time
-- ARGV[7]  int     ms  how long limit and permits are kept after their last use; 0 for ever
--
-- Returns
--   {1, now_us}     <id>:<number> has the units
--   {0, now_us}     neither the acquisition nor an earlier call has them: nothing changed
--   {-2, now_us}    arrived after its end: nothing changed
--
-- Guarantees  no command for the acquisition changes the permit after that: Redis keeps it under
--             another id; a later call wins; works when Redis is out of memory; the description stays;
--             a refusal leaves the permit with the one that had it; only a server that takes writes
--             says that neither has it.
-- Twice       a copy finds the permit kept, and changes nothing. A copy of an earlier call changes nothing.
-- Cost        one round trip, O(log n).
-- include clock errors permits

local acquisition, kept, number, units = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local keep_ms, void_after_us, retention_ms = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

local now_us = server_time_us()
if now_us > void_after_us then
  return {-2, now_us}
end
local now_ms = math.floor(now_us / 1000)

local entries = redis.pcall('ZCARD', KEYS[1])
local other = is_other_type(entries)
local refused = not other and refusal(entries)
if refused then
  return refused
end

-- Reports whether an id has the units: that of this call, of the acquisition, or of an earlier call.
local function has(id)
  return not other and extend_permit(0, id, units, now_ms, 0, retention_ms)
end

local to = string.format('%s:%d', kept, number)
if has(to) then
  return {1, now_us}
end
local from = has(acquisition) and acquisition
for earlier = number - 1, 1, -1 do
  local id = string.format('%s:%d', kept, earlier)
  from = from or has(id) and id
end
if not from then
  return writes_refused(0) or {0, now_us}
end

-- PEXPIRE first: the write that Redis accepts when it is out of memory, and then the writes behind it
-- too. The old permit ends last, so that a refusal leaves it. The description is for people and
-- decides nothing, so its refusal does not count.
local _, ends = permit_entries(to, units, now_ms + keep_ms)
refused = keep_permits(0, retention_ms, keep_ms) or refusal(redis.pcall('ZADD', KEYS[1], unpack(ends)))
if refused then
  return refused
end
local description = redis.pcall('HGET', KEYS[2], from)
if type(description) == 'string' then
  redis.pcall('HSET', KEYS[2], to, description)
end
_, refused = drop_permit(0, from, units, now_ms)
if refused then
  undo_permit(0, to, units)
  return refused
end
redis.pcall('HDEL', KEYS[2], from)
return {1, now_us}
