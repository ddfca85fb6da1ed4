-- queue_grant: a free lock goes to the first waiter.
-- include clock fence grant notify queue grace head

-- Grants the free lock to the first waiter that lives, and notifies its client. The first lease is
-- the rest of its heartbeat or its lease, whichever is shorter. Returns the grant, or nil if
-- nobody waits; the refusal if there is one; and whether more waiters must be dropped before than
-- one call may drop.
local function grant_first(at, now_us, grace_ms, keep_ms, prefix)
  local first, left_ms, more = first_waiter(at, math.floor(now_us / 1000), grace_ms)
  if not first then
    return nil, nil, more
  end
  local fence, refused = take_fence(at, now_us, keep_ms)
  if not fence then
    return nil, refused
  end
  local acquisition, _, _, lease_ms, description = parse_waiter(first)
  lease_ms = math.min(lease_ms, left_ms)
  -- Out of the queue first: what is refused after that, the waiter asks for itself.
  refused = remove_waiters(at, {first}) or write_grant(at, acquisition, description, lease_ms)
  if refused then
    return nil, refused
  end
  local receivers = notify_waiter(prefix, acquisition)
  return {acquisition = acquisition, description = description, ttl_ms = lease_ms, fence = fence, receivers = receivers}
end

-- Gives a free lock to the first waiter of the queue. If nobody is in the queue, it notifies those
-- who wait without one, unless an earlier call did: when the lock was free before this call, and
-- had no queue. Returns how many clients received a message, or -1 if the user may not publish;
-- and 1 if more waiters must be dropped before than one call may drop.
local function grant_or_notify(at, freed, is_queue, channel, in_cluster, keep_ms, prefix)
  if is_queue then
    local now_us = server_time_us()
    local now_ms = math.floor(now_us / 1000)
    local grace_ms, more = grace_end(at, now_ms)
    if drop_expired(at, now_ms, grace_ms) or more then
      return 0, 1
    end
    local grant, _
    grant, _, more = grant_first(at, now_us, grace_ms, keep_ms, prefix)
    if grant or more then
      return grant and grant.receivers or 0, more and 1 or 0
    end
  end
  return (freed or is_queue) and notify_free(channel, in_cluster) or 0, 0
end
