-- Tells those who wait without a queue that the lock is free. How many heard it:
-- all on a single server, those of one node in a cluster; -1 when they may not be
-- told, which must not become an error: the lock is free by now. SPUBLISH is
-- unknown before Redis 7, where Redisson does not listen to it either.
local function tell_free(channel, in_cluster)
  if in_cluster == 1 then
    redis.pcall('SPUBLISH', channel, '0')
  end
  local heard = redis.pcall('PUBLISH', channel, '0')
  if refusal(heard) then
    return -1
  end
  return heard
end
