-- inspect: who has the lock, for how long, under which fence.
--
-- KEYS[1]  hash    <name>                        acquisition, holds
-- KEYS[2]  string  redisson_lock_token:{name}    the last fence given out
--
-- Returns
--   {holder, holds, ttl_ms, description, fence, now_us}    holder and fence are empty when there is none
--   error WRONGTYPE                                  the key is no mutex
--
-- Guarantees  one consistent view; changes nothing.
-- Twice       the same.
-- Cost        one round trip, O(1).
-- include clock errors holder

local fields = redis.pcall('HGETALL', KEYS[1])
local refused = refusal(fields)
if refused then
  return refused
end
local holder, holds, description = holder_of(fields)
if not holds then
  return not_mutex()
end
local stored = redis.pcall('GET', KEYS[2])
refused = refusal(stored)
if refused then
  return refused
end
return {holder or '', holds, redis.call('PTTL', KEYS[1]), description, stored or '', (server_time_us())}
