-- queue_grant: the lock goes to the first waiter.
-- include clock errors fence grant notify queue grace head

-- Gives the lock to a waiter, which leaves the queue, and returns the refusal if there is one. Then the
-- waiter keeps its place. The lock ends for those in holders, a list as HGETALL returns it: after the new
-- grant, so that the key never vanishes in between. A node that gives the slot away would refuse to write
-- a key that has vanished. The waiter may be in holders too, and keeps its new grant.
local function grant_waiter(at, member, acquisition, description, lease_ms, holders)
  local refused = write_grant(at, acquisition, description, lease_ms)
  if refused then
    return refused
  end
  local ended = {}
  for i = 1, #holders, 2 do
    if holders[i] ~= acquisition and holders[i] ~= 'redlatch:about' then
      ended[#ended + 1] = holders[i]
    end
  end
  refused = ended[1] and refusal(redis.pcall('HDEL', KEYS[at + 1], unpack(ended)))
    or remove_waiters(at, {member})
  if refused then
    undo_grant(at, acquisition)
  end
  return refused
end

-- Grants the lock to the first waiter that lives, in the place of its holders, and notifies its client. The
-- first lease is the rest of its heartbeat or its lease, whichever is shorter. Returns the grant, or nil
-- if nobody waits; the refusal if there is one; and whether more waiters must be dropped before than
-- one call may drop.
local function grant_first(at, now_us, grace_ms, keep_ms, prefix, holders)
  local first, left_ms, more = first_waiter(at, math.floor(now_us / 1000), grace_ms)
  if not first then
    return nil, nil, more
  end
  local acquisition, _, _, lease_ms, description = parse_waiter(first)
  local fence, refused = take_fence(at, now_us, fence_life(keep_ms, lease_ms))
  if not fence then
    return nil, refused
  end
  lease_ms = math.min(lease_ms, left_ms)
  refused = grant_waiter(at, first, acquisition, description, lease_ms, holders)
  if refused then
    return nil, refused
  end
  local receivers = notify_waiter(prefix, acquisition, KEYS[at + 3])
  return {acquisition = acquisition, description = description, ttl_ms = lease_ms, fence = fence, receivers = receivers}
end

-- Drops expired waiters, and grants the lock to the first waiter, in the place of its holders. Returns the
-- grant, or nil, and whether more waiters must be dropped before than one call may drop.
local function grant_next(at, keep_ms, prefix, holders)
  local now_us = server_time_us()
  local now_ms = math.floor(now_us / 1000)
  local grace_ms, more = grace_end(at, now_ms)
  if drop_expired(at, now_ms, grace_ms) or more then
    return nil, true
  end
  local grant, _
  grant, _, more = grant_first(at, now_us, grace_ms, keep_ms, prefix, holders)
  return grant, more
end

-- Ends the lock of its holders, a list as HGETALL returns it, which is empty if the lock is free. The lock
-- goes to the first waiter of the queue. If nobody is in the queue, this frees the lock, and notifies those
-- who wait without a queue, unless an earlier call did: when the lock was free before this call, and had no
-- queue.
--
-- Returns how many clients received a message, or -1 if the user may not publish; 1 if more waiters must be
-- dropped before the grant than one call may drop, else 0; and the refusal if there is one. Then the lock
-- is still held. If Redis refuses only the grant, this does what it does if nobody is in the queue. It
-- never raises an error.
--
-- The first write deletes the description. Redis accepts it when it is out of memory, and after it the
-- others too. It also shows whether the user may use HDEL. Without it, nobody is granted the lock, because
-- then the old grant could not be removed. With it, the lock can also be freed without DEL.
local function hand_on(at, holders, is_queue, channel, in_cluster, keep_ms, prefix)
  local held, more = refusal(holders) or #holders > 0, false
  local may_delete = is_queue and not refusal(holders)
    and not refusal(redis.pcall('HDEL', KEYS[at + 1], 'redlatch:about'))
  if may_delete then
    local done, grant
    done, grant, more = pcall(grant_next, at, keep_ms, prefix, holders)
    if done and grant then
      return grant.receivers, 0
    end
    more = done and more
  end
  local refused = held and refusal(redis.pcall('DEL', KEYS[at + 1]))
  if refused and may_delete then
    refused = refusal(redis.pcall('HDEL', KEYS[at + 1], unpack(holders)))
  end
  if refused or more then
    return 0, more and 1 or 0, refused
  end
  return (held or is_queue) and notify_free(channel, in_cluster) or 0, 0
end
