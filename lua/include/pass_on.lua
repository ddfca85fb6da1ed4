-- A lock that is free goes to the first of the queue; where nobody is in it, those
-- who wait without a queue are told. They have been already where there was none,
-- unless it was freed just now. How many were told, -1 if none may be; and 1 when
-- more dead waiters are to be dropped before.
local function pass_on(at, freed, is_queue, channel, in_cluster, keep_ms, prefix)
  if is_queue then
    local now_us = server_time_us()
    local now_ms = math.floor(now_us / 1000)
    local grace_ms, more = queue_grace(at, now_ms)
    if queue_bury(at, now_ms, grace_ms) or more then
      return 0, 1
    end
    local grant, _
    grant, _, more = grant_next(at, now_us, grace_ms, keep_ms, prefix)
    if grant or more then
      return grant and grant.heard or 0, more and 1 or 0
    end
  end
  return (freed or is_queue) and tell_free(channel, in_cluster) or 0, 0
end
