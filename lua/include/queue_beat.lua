-- Notes that a waiter lives, and keeps the queue for several heartbeats and a
-- minute more: a server that stood still for that long loses nobody. Never for less
-- than before; what is alone in the queue has no before. PEXPIRE first, always, which
-- Redis accepts also when it is out of memory, and then the rest too. The refusal if
-- there is one.
local function queue_beat(at, member, heartbeat_ms, now_ms, alone)
  local queue_ms, alive_ms, keep_ms = 0, 0, 60000 + 10 * heartbeat_ms
  if not alone then
    queue_ms, alive_ms = redis.call('PTTL', KEYS[at + 3]), redis.call('PTTL', KEYS[at + 4])
  end
  return refusal(redis.pcall('PEXPIRE', KEYS[at + 3], math.max(queue_ms, keep_ms)))
    or refusal(redis.pcall('ZADD', KEYS[at + 4], now_ms + heartbeat_ms, member))
    or refusal(redis.pcall('PEXPIRE', KEYS[at + 4], math.max(alive_ms, keep_ms)))
end
