-- keep: have Redis keep a lock for a time, with nobody who renews it.
--
-- KEYS[1]  hash  <name>  acquisition, holds
--
-- ARGV[1]  string  -   acquisition that ends
-- ARGV[2]  string  -   id of what is kept: kept-<uuid>, the same for all calls for the acquisition
-- ARGV[3]  int     -   number of this call for it, from 1
-- ARGV[4]  int     ms  how long to keep the lock
-- ARGV[5]  int     us  void after, server time
--
-- Returns
--   {1, now_us}     <id>:<number> has the lock
--   {0, now_us}     neither the acquisition nor an earlier call has it: nothing changed
--   {-2, now_us}    arrived after its end: nothing changed
--
-- Guarantees  no command for the acquisition changes the lock after that: Redis keeps it under another
--             id; a later call wins; works when Redis is out of memory; the description stays; a
--             refusal leaves the lock with the one that had it, for as long as before; only a server
--             that takes writes says that neither has it.
-- Twice       a copy finds the lock kept, and changes nothing. A copy of an earlier call changes nothing.
-- Cost        one round trip, O(1).
-- include clock errors holder

local acquisition, kept, number = ARGV[1], ARGV[2], tonumber(ARGV[3])
local keep_ms, void_after_us = tonumber(ARGV[4]), tonumber(ARGV[5])

local now_us = server_time_us()
if now_us > void_after_us then
  return {-2, now_us}
end

local fields = redis.pcall('HGETALL', KEYS[1])
local other = is_other_type(fields)
local refused = not other and refusal(fields)
if refused then
  return refused
end

-- The number of the call for which Redis keeps the lock, 0 if the acquisition has it.
local holder = not other and holder_of(fields)
local id, last = string.match(holder or '', '^(.*):(%d+)$')
local at = holder and (holder == acquisition and 0 or id == kept and tonumber(last))
if at == number then
  return {1, now_us}
end
if not at or at > number then
  return writes_refused(0) or {0, now_us}
end

-- PEXPIRE first: the write that Redis accepts when it is out of memory, and then the writes behind it
-- too. HDEL last: until then a refusal leaves the lock with the one that has it, and the key never
-- vanishes in between.
local to, left_ms = string.format('%s:%d', kept, number), redis.pcall('PTTL', KEYS[1])
refused = refusal(redis.pcall('PEXPIRE', KEYS[1], keep_ms))
  or refusal(redis.pcall('HSET', KEYS[1], to, '1'))
if refused then
  return restore_lease(0, left_ms, refused)
end
refused = refusal(redis.pcall('HDEL', KEYS[1], holder))
if refused then
  remove_second(0, to, keep_ms)
  restore_lease(0, left_ms)
end
return refused or {1, now_us}
