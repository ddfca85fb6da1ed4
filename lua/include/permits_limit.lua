-- The limit, kept as the score of a reserved member, below every time. So are what
-- programs say, and minus the stamp of the last resize. Where no limit
-- is known, what is said becomes it, and descriptions that permits have left behind
-- go; or no limit, where nothing is said. And the refusal if there is one.
local function permits_limit(at, said, keep_ms)
  local limit = redis.pcall('ZSCORE', KEYS[at + 1], 'limit')
  local refused = refusal(limit)
  if refused or limit then
    return not refused and tonumber(limit), refused
  end
  if said then
    refused = refusal(redis.pcall('ZADD', KEYS[at + 1], said, 'limit', said, 'declared'))
      or keep_ms > 0 and refusal(redis.pcall('PEXPIRE', KEYS[at + 1], keep_ms))
    -- Not before: Redis without memory accepts what comes behind a DEL.
    if not refused then
      redis.pcall('DEL', KEYS[at + 2])
    end
  end
  return said, refused
end
