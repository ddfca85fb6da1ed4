-- grant: a lock's grant to an acquisition, and the lease of it.
-- include errors fence

-- Takes the lock from an acquisition that this call has given it to, because Redis refused what
-- follows the grant. A user that may not expire a key may not delete it either, if the whole
-- category was denied. If the user may use neither DEL nor HDEL, the grant stays.
local function undo_grant(at, acquisition)
  if refusal(redis.pcall('DEL', KEYS[at + 1])) then
    redis.pcall('HDEL', KEYS[at + 1], acquisition, 'redlatch:about')
  end
end

-- Gives the free lock to an acquisition, and returns the refusal if there is one. The caller has
-- taken the fence before. If Redis refuses a command, nothing has changed: a lock without its
-- expiry would stay for ever. A fence that grew without a grant does no harm.
local function write_grant(at, acquisition, description, lease_ms)
  local reply
  if description == '' then
    reply = redis.pcall('HSET', KEYS[at + 1], acquisition, '1')
  else
    reply = redis.pcall('HSET', KEYS[at + 1], acquisition, '1', 'redlatch:about', description)
  end
  local refused = refusal(reply)
  if refused then
    return refused
  end
  refused = refusal(redis.pcall('PEXPIRE', KEYS[at + 1], lease_ms))
  if refused then
    undo_grant(at, acquisition)
  end
  return refused
end

-- Sets the lease of the holder, unless lease_ms is 0, and returns its fence. If Redis has lost the
-- fence, the holder gets a new one. The lease is set exactly: a clock that was set back has made
-- it longer. The first write is one that Redis accepts when it is out of memory. After it, Redis
-- accepts the others too.
local function keep_grant(at, lease_ms, fence, now_us, keep_ms)
  local refused
  if lease_ms > 0 then
    refused = refusal(redis.pcall('PEXPIRE', KEYS[at + 1], lease_ms))
  else
    refused = refusal(redis.pcall('HDEL', KEYS[at + 1], ''))
  end
  if not refused and fence == 0 then
    fence, refused = take_fence(at, now_us, fence_life(keep_ms, lease_ms))
  end
  return fence, refused
end
