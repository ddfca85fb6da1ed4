-- Stores the fence, for ever or for keep_ms, and never for less than another client has
-- asked for; the refusal if there is one. One that was kept for ever stays so, whoever
-- comes next: Redisson counts on from it, and would begin at one again.
local function store_fence(at, fence, keep_ms)
  local left_ms = keep_ms > 0 and redis.call('PTTL', KEYS[at + 2]) or -1
  if left_ms ~= -1 then
    return refusal(redis.pcall('SET', KEYS[at + 2], fence, 'PX', math.max(keep_ms, left_ms)))
  end
  return refusal(redis.pcall('SET', KEYS[at + 2], fence))
end
