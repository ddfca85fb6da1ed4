-- Gives the free lock to an acquisition, after its fence was taken: where a permission or
-- memory lacks, that is refused with nothing changed, and a fence that moved without a grant
-- does no harm. The refusal if there is one.
local function write_grant(at, acquisition, about, lease_ms)
  if about == '' then
    redis.call('HSET', KEYS[at + 1], acquisition, '1')
  else
    redis.call('HSET', KEYS[at + 1], acquisition, '1', 'redlatch:about', about)
  end
  local refused = refusal(redis.pcall('PEXPIRE', KEYS[at + 1], lease_ms))
  if refused then
    -- A lock without its expiry would stay. A user that may not expire it may not delete
    -- it either, where the whole category was denied.
    if refusal(redis.pcall('DEL', KEYS[at + 1])) then
      redis.pcall('HDEL', KEYS[at + 1], acquisition, 'redlatch:about')
    end
  end
  return refused
end
