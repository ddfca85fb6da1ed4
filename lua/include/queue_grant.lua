-- queue_grant: a free lock goes to the first waiter.
-- include clock fence grant notify queue grace head

-- Gives the free lock to a waiter, which leaves the queue, and returns the refusal if there is one.
-- Then nothing has changed: the waiter keeps its place.
local function grant_waiter(at, member, acquisition, description, lease_ms)
  local refused = write_grant(at, acquisition, description, lease_ms)
  if refused then
    return refused
  end
  refused = remove_waiters(at, {member})
  if refused then
    undo_grant(at, acquisition)
  end
  return refused
end

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
  refused = grant_waiter(at, first, acquisition, description, lease_ms)
  if refused then
    return nil, refused
  end
  local receivers = notify_waiter(prefix, acquisition)
  return {acquisition = acquisition, description = description, ttl_ms = lease_ms, fence = fence, receivers = receivers}
end

-- Drops expired waiters, and grants the free lock to the first waiter. Returns how many clients
-- received the message, and 1 if more waiters must be dropped before than one call may drop; or
-- nothing if nobody was granted the lock.
local function grant_next(at, keep_ms, prefix)
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

-- Gives a free lock to the first waiter of the queue. If nobody is in the queue, it notifies those
-- who wait without one, unless an earlier call did: when the lock was free before this call, and
-- had no queue. Returns how many clients received a message, or -1 if the user may not publish;
-- and 1 if more waiters must be dropped before than one call may drop.
--
-- It never raises an error, because the lock is free by now. If Redis refuses the grant, this does
-- what it does if nobody is in the queue.
local function grant_or_notify(at, freed, is_queue, channel, in_cluster, keep_ms, prefix)
  if is_queue then
    local done, receivers, more = pcall(grant_next, at, keep_ms, prefix)
    if done and receivers then
      return receivers, more
    end
  end
  return (freed or is_queue) and notify_free(channel, in_cluster) or 0, 0
end
