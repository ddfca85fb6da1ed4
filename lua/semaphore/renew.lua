-- renew: extend many permits of one slot, and only those that their acquisitions still have.
--
-- KEYS[2i-1]  zset  redlatch:permits:{name}    entries of permits -> end of their lease; limits
-- KEYS[2i]    hash  redlatch:holders:{name}    acquisition -> since, units, description
--
-- ARGV[1]     int     ms  how long limit and permits are kept after their last use; 0 for ever
-- ARGV[3i-1]  string  -   acquisition
-- ARGV[3i]    int     -   its units
-- ARGV[3i+1]  int     ms  lease; 0 only looks
--
-- Returns
--   {answer, ...}    one for each permit: 2 extended, 1 held and not extended, 0 not this
--                    acquisition's any more, -1 refused by the server
--
-- Guarantees  never revives a lease that is over, never adds; only a server that takes writes
--             says that a permit is gone.
-- Twice       a copy sets one lease from its arrival.
-- Cost        one round trip, O(permits log n).
-- include clock errors permits

local keep_ms = tonumber(ARGV[1])
local now_ms = math.floor(server_time_us() / 1000)

local function renew(at, acquisition, units, lease_ms)
  local known = redis.pcall('ZCARD', KEYS[at + 1])
  local has, refused = false, not is_other_type(known) and refusal(known)
  if not refusal(known) then
    has, refused = extend_permit(at, acquisition, units, now_ms, lease_ms, keep_ms)
  end
  if refused or not has and writes_refused(at) then
    return -1
  end
  return has and (lease_ms > 0 and 2 or 1) or 0
end

local answers = {}
for i = 1, #KEYS / 2 do
  answers[i] = renew(2 * i - 2, ARGV[3 * i - 1], tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1]))
end
return answers
