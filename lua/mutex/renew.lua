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
-- Guarantees  extends only what the named acquisition has, to exactly the lease, also where
--             the clock was set back and made it longer; never creates; only a server that
--             takes writes says that a lock is gone.
-- Twice       a copy extends to one lease from its arrival.
-- Cost        one round trip, O(locks).
-- include errors

local function renew(i)
  local mine = redis.pcall('HEXISTS', KEYS[i], ARGV[2 * i - 1])
  if mine == 0 or is_other_type(mine) then
    return writes_refused(i - 1) and -1 or 0
  end
  if refusal(mine) then
    return -1
  end
  local lease_ms = tonumber(ARGV[2 * i])
  if lease_ms == 0 then
    return 1
  end
  if refusal(redis.pcall('PEXPIRE', KEYS[i], lease_ms)) then
    return -1
  end
  return 2
end

local answers = {}
for i = 1, #KEYS do
  answers[i] = renew(i)
end
return answers
