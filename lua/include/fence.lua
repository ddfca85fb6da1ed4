-- fence: the fence of a lock, which grows with each grant.
-- include errors

-- Above 2^53 - 1, Lua does not have all whole numbers.
local largest_exact = 9007199254740991

-- The error of a stored fence that is no number, or cannot grow.
local function bad_fence()
  return redis.error_reply('BADFENCE the stored fence of this lock cannot be counted up')
end

-- The stored fence as a number: 0 if there is none, nil if it is no whole number that Lua has
-- exactly.
local function last_fence(stored)
  local last = tonumber(stored or 0)
  if last and last >= 0 and last <= largest_exact and last % 1 == 0 then
    return last
  end
  return nil
end

-- The fence of a fresh grant, and stores it. It is above the last fence and not below the server's
-- clock, so it also grows if Redis has lost the stored one.
--
-- Redis keeps it for keep_ms at least, and for ever if that is 0. A call never shortens its life:
-- another client may have asked for more. A fence without expiry keeps none, because Redisson
-- counts on from it and would begin at one again. The life is extended by up to an hour more than
-- keep_ms, so most grants need not extend it.
--
-- Returns nil and the refusal if Redis refuses, or if Lua cannot add to the fence exactly. The
-- first SET may have put a smaller number in the place of the fence, so the function then writes
-- the stored fence again: it never goes back.
--
-- stored is the reply of the first SET, which puts now_us in the place of the fence.
local function grow_fence(at, now_us, keep_ms, stored)
  local refused = refusal(stored)
  if refused then
    return nil, refused
  end
  local last = last_fence(stored)
  local fence = last and last < largest_exact and math.max(last + 1, now_us)
  local left_ms = fence and keep_ms > 0 and stored and redis.pcall('PTTL', KEYS[at + 2])
  refused = not fence and bad_fence() or refusal(left_ms)
  if not refused and keep_ms == 0 then
    refused = refusal(redis.pcall('SET', KEYS[at + 2], fence))
  elseif not refused and (not stored or left_ms >= 0 and left_ms < keep_ms) then
    refused = refusal(redis.pcall('SET', KEYS[at + 2], fence, 'PX', keep_ms + math.min(keep_ms, 3600000)))
  elseif not refused and fence > now_us then
    refused = refusal(redis.pcall('SET', KEYS[at + 2], fence, 'KEEPTTL'))
  end
  if refused and stored then
    redis.pcall('SET', KEYS[at + 2], stored, 'KEEPTTL')
  end
  return not refused and fence or nil, refused
end

-- For how long Redis keeps the fence of a lock with this lease: for two leases at least, because lists find
-- locks by their fences; for ever if keep_ms is 0.
local function fence_life(keep_ms, lease_ms)
  return keep_ms > 0 and math.max(keep_ms, 2 * lease_ms) or 0
end

-- The first SET, and grow_fence after it.
local function take_fence(at, now_us, keep_ms)
  return grow_fence(at, now_us, keep_ms, redis.pcall('SET', KEYS[at + 2], now_us, 'KEEPTTL', 'GET'))
end
