-- renew: extend the leases of many locks of one slot.
--
-- KEYS[i]  hash  <name>  acquisition, holds
--
-- ARGV[2i-1]  string  -   acquisition that has lock i
-- ARGV[2i]    int     ms  lease; 0 only looks
--
-- Returns
--   {answer, ...}    one for each lock: 2 extended, 1 held and not extended, 0 gone or another's,
--                    -1 refused by the server
--
-- Guarantees  extends only what the named acquisition has; never creates, never shortens.
-- Twice       a copy extends to one lease from its arrival, at most.
-- Cost        one round trip, O(locks).
-- include refusal is_other_type

local function renew(i)
  local mine = redis.pcall('HEXISTS', KEYS[i], ARGV[2 * i - 1])
  if is_other_type(mine) then
    return 0
  end
  if refusal(mine) then
    return -1
  end
  local lease_ms = tonumber(ARGV[2 * i])
  if mine == 0 or lease_ms == 0 then
    return mine
  end
  if redis.call('PTTL', KEYS[i]) < lease_ms and refusal(redis.pcall('PEXPIRE', KEYS[i], lease_ms)) then
    return -1
  end
  return 2
end

local answers = {}
for i = 1, #KEYS do
  answers[i] = renew(i)
end
return answers
