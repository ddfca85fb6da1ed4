-- Sets the lease of who has the lock, or leaves it as it is where that is 0, and gives
-- its fence: a new one when the stored one was lost. Exactly the lease: a clock that
-- was set back has made it longer. The first write is one that Redis accepts also when
-- it is out of memory, and then the writes behind it too.
local function keep_grant(at, lease_ms, fence, now_us, keep_ms)
  local refused
  if lease_ms > 0 then
    refused = refusal(redis.pcall('PEXPIRE', KEYS[at + 1], lease_ms))
  else
    refused = refusal(redis.pcall('HDEL', KEYS[at + 1], ''))
  end
  if not refused and fence == 0 then
    fence, refused = take_fence(at, now_us, keep_ms)
  end
  return fence, refused
end
