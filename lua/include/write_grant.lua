-- Gives the free lock to an acquisition; the refusal if there is one. The fence
-- is written first: where a permission or memory lacks, it is refused with
-- nothing changed; and a fence that moved without a grant does no harm.
local function write_grant(at, acquisition, about, lease_ms, fence, keep_ms)
  local refused = store_fence(at, fence, keep_ms)
  if refused then
    return refused
  end
  if about == '' then
    redis.call('HSET', KEYS[at + 1], acquisition, 1)
  else
    redis.call('HSET', KEYS[at + 1], acquisition, 1, 'redlatch:about', about)
  end
  refused = refusal(redis.pcall('PEXPIRE', KEYS[at + 1], lease_ms))
  if refused then
    -- A lock without its expiry would stay. A user that may not expire it may not delete
    -- it either, where the whole category was denied.
    if refusal(redis.pcall('DEL', KEYS[at + 1])) then
      redis.pcall('HDEL', KEYS[at + 1], acquisition, 'redlatch:about')
    end
  end
  return refused
end
