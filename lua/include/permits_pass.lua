-- What a call does that may have made units free: drops the dead and what is over,
-- and serves the queue, if there is one. 1 if there is more to do than one call may,
-- else 0.
local function permits_pass(at, now_us, limit, is_queue, keep_ms, prefix)
  local now_ms = math.floor(now_us / 1000)
  local in_use = permits_look(at, now_ms, 200)
  if not limit or not is_queue or refusal(redis.pcall('ZCARD', KEYS[at + 4])) then
    return 0
  end
  local grace_ms, more = queue_grace(at, now_ms)
  if queue_bury(at, now_ms, grace_ms) or more then
    return 1
  end
  local _
  _, more = permits_serve(at, limit - in_use, now_us, grace_ms, limit, keep_ms, prefix, '')
  return more and 1 or 0
end
