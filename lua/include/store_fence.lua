-- Stores the fence, for ever or for keep_ms; the refusal if there is one.
local function store_fence(fence, keep_ms)
  if keep_ms > 0 then
    return refusal(redis.pcall('SET', KEYS[2], fence, 'PX', keep_ms))
  end
  return refusal(redis.pcall('SET', KEYS[2], fence))
end
