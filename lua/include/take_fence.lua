-- The fence of a fresh grant: above the last one, and never below the server's clock, so
-- that it grows also when the stored one was lost. Stored for ever, or for keep_ms at
-- least, and never for less than another client has asked for: one that was kept for ever
-- stays so, for Redisson counts on from it and would begin at one again. Its life is
-- extended by up to an hour more than asked for, so that most grants need not extend it.
-- Nil and the refusal when there is none, or when Lua cannot add to it exactly (2^53);
-- nothing is changed then.
local function take_fence(at, now_us, keep_ms)
  local stored = redis.pcall('SET', KEYS[at + 2], now_us, 'KEEPTTL', 'GET')
  local refused = refusal(stored)
  if refused then
    return nil, refused
  end
  local last = last_fence(stored)
  if not last or last >= 9007199254740991 then
    redis.call('SET', KEYS[at + 2], stored, 'KEEPTTL')
    return nil, bad_fence()
  end
  local fence = math.max(last + 1, now_us)
  local left_ms = keep_ms > 0 and stored and redis.call('PTTL', KEYS[at + 2])
  if keep_ms == 0 then
    redis.call('SET', KEYS[at + 2], fence)
  elseif not stored or left_ms >= 0 and left_ms < keep_ms then
    redis.call('SET', KEYS[at + 2], fence, 'PX', keep_ms + math.min(keep_ms, 3600000))
  elseif fence > now_us then
    redis.call('SET', KEYS[at + 2], fence, 'KEEPTTL')
  end
  return fence
end
