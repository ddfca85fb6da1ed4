-- Keeps limit, permits and descriptions for keep_ms, 0 for ever; never for less
-- than before, and never for less than what was just written: entry_ms, until its
-- lease ends. So the key outlives every entry in it, whoever writes. Both writes are
-- some that Redis accepts also when it is out of memory, and then the writes behind
-- them too. The refusal if there is one.
local function permits_keep(at, keep_ms, entry_ms)
  local left_ms = redis.call('PTTL', KEYS[at + 1])
  if keep_ms == 0 or left_ms == -1 then
    redis.pcall('PERSIST', KEYS[at + 2])
    return refusal(redis.pcall('PERSIST', KEYS[at + 1]))
  end
  left_ms = math.max(left_ms, keep_ms, entry_ms)
  redis.pcall('PEXPIRE', KEYS[at + 2], left_ms)
  return refusal(redis.pcall('PEXPIRE', KEYS[at + 1], left_ms))
end
