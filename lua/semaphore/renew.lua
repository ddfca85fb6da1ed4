-- renew: extend many permits of one slot, and only those that their acquisitions still have.
--
-- KEYS[2i-1]  zset  redlatch:permits:{name}    entries of permits -> end of their lease; limits
-- KEYS[2i]    hash  redlatch:holders:{name}    acquisition -> since, units, what it says of itself
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
-- Guarantees  never shortens a lease, never revives one that is over, never adds.
-- Twice       a copy extends to one lease from its arrival, at most.
-- Cost        one round trip, O(permits log n).
-- include server_time_us refusal is_other_type permits_keep permits_extend

local keep_ms = tonumber(ARGV[1])
local now_ms = math.floor(server_time_us() / 1000)

local function renew(at, acquisition, units, lease_ms)
  local known = redis.pcall('ZCARD', KEYS[at + 1])
  if refusal(known) then
    return is_other_type(known) and 0 or -1
  end
  local refused = lease_ms > 0 and known > 0 and permits_keep(at, keep_ms)
  local has = false
  if not refused then
    has, refused = permits_extend(at, acquisition, units, now_ms, now_ms + lease_ms)
  end
  if refused then
    return -1
  end
  return has and (lease_ms > 0 and 2 or 1) or 0
end

local answers = {}
for i = 1, #KEYS / 2 do
  answers[i] = renew(2 * i - 2, ARGV[3 * i - 1], tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1]))
end
return answers
