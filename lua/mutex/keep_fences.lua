-- keep_fences: have Redis keep the fences of many locks of one slot for longer.
--
-- KEYS[i]  string  redisson_lock_token:{name}    the last fence given out
--
-- ARGV[1]  int  ms  how long each is kept at least
--
-- Returns
--   {1, number}    done; and how many live longer now
--
-- Guarantees  changes the life of fences only: never shortens it, and gives no end to a fence without one;
--             never creates.
-- Twice       a copy finds the fences kept, and changes nothing.
-- Cost        one round trip, O(fences).

local keep_ms = tonumber(ARGV[1])

local kept = 0
for i = 1, #KEYS do
  local left_ms = redis.pcall('PTTL', KEYS[i])
  if type(left_ms) == 'number' and left_ms >= 0 and left_ms < keep_ms
    and redis.pcall('PEXPIRE', KEYS[i], keep_ms + math.min(keep_ms, 3600000)) == 1 then
    kept = kept + 1
  end
end
return {1, kept}
