-- Keeps limit, permits and descriptions for keep_ms, 0 for ever; never for less
-- than before. Both writes are some that Redis accepts also when it is out of
-- memory, and then the writes behind them too. The refusal if there is one.
local function permits_keep(at, keep_ms)
  local left_ms = redis.call('PTTL', KEYS[at + 1])
  if keep_ms == 0 or left_ms == -1 then
    redis.pcall('PERSIST', KEYS[at + 2])
    return refusal(redis.pcall('PERSIST', KEYS[at + 1]))
  end
  redis.pcall('PEXPIRE', KEYS[at + 2], math.max(left_ms, keep_ms))
  return refusal(redis.pcall('PEXPIRE', KEYS[at + 1], math.max(left_ms, keep_ms)))
end
