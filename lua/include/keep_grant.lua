-- Extends the lease of who has the lock, never shortens it, and gives its fence:
-- a new one when the stored one was lost. PEXPIRE first: the write that Redis
-- accepts also when it is out of memory, and then the writes behind it too.
local function keep_grant(at, lease_ms, fence, now_us, keep_ms)
  local refused = refusal(redis.pcall('PEXPIRE', KEYS[at + 1], math.max(redis.call('PTTL', KEYS[at + 1]), lease_ms)))
  if not refused and fence == 0 then
    fence = now_us
    refused = store_fence(at, fence, keep_ms)
  end
  return fence, refused
end
