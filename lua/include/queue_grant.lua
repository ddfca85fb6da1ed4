-- queue_grant: a lock goes to the first waiter.
-- include clock errors fence grant notify queue grace head

-- Gives a lock to an acquisition, in the place of others that have it. It writes the new one before it
-- removes the others, so that the key never vanishes in between: a node whose slot migrates refuses to
-- make a key that it does not have. Returns the refusal if there is one. Then the caller deletes the lock.
local function replace_grant(at, acquisition, description, replaced)
  local written
  if description == '' then
    written = redis.pcall('HSET', KEYS[at + 1], acquisition, '1')
  else
    written = redis.pcall('HSET', KEYS[at + 1], acquisition, '1', 'redlatch:about', description)
  end
  local about = description == '' and 'redlatch:about' or ''
  return refusal(written) or refusal(redis.pcall('HDEL', KEYS[at + 1], about, unpack(replaced)))
end

-- Gives the lock to a waiter, which leaves the queue, and returns the refusal if there is one. Then
-- the waiter keeps its place. The lock is free, or the acquisitions in replaced have it.
local function grant_waiter(at, member, acquisition, description, lease_ms, replaced)
  local refused
  if replaced then
    refused = replace_grant(at, acquisition, description, replaced)
  else
    refused = write_grant(at, acquisition, description, lease_ms)
  end
  if refused then
    return refused
  end
  refused = remove_waiters(at, {member})
  if refused and not replaced then
    undo_grant(at, acquisition)
  end
  return refused
end

-- Grants the lock to the first waiter that lives, and notifies its client. The lock is free, or the
-- acquisitions in replaced have it. The first lease is the rest of the waiter's heartbeat or its
-- lease, whichever is shorter. Returns the grant, or nil if nobody waits; the refusal if there is one;
-- and whether more waiters must be dropped before than one call may drop.
local function grant_first(at, now_us, grace_ms, keep_ms, prefix, replaced)
  local first, left_ms, more = first_waiter(at, math.floor(now_us / 1000), grace_ms)
  if not first then
    return nil, nil, more
  end
  local acquisition, _, _, lease_ms, description = parse_waiter(first)
  lease_ms = math.min(lease_ms, left_ms)
  -- PEXPIRE first: the write that Redis accepts when it is out of memory, and then the writes behind it too.
  local fence
  local refused = replaced and refusal(redis.pcall('PEXPIRE', KEYS[at + 1], lease_ms))
  if not refused then
    fence, refused = take_fence(at, now_us, keep_ms)
  end
  refused = refused or grant_waiter(at, first, acquisition, description, lease_ms, replaced)
  if refused then
    return nil, refused
  end
  local receivers = notify_waiter(prefix, acquisition)
  return {acquisition = acquisition, description = description, ttl_ms = lease_ms, fence = fence, receivers = receivers}
end

-- Drops expired waiters, and grants the lock to the first waiter. Returns how many clients received the
-- message, or nil if nobody was granted the lock; and 1 if more waiters must be dropped before than one
-- call may drop, else 0.
local function grant_next(at, keep_ms, prefix, replaced)
  local now_us = server_time_us()
  local now_ms = math.floor(now_us / 1000)
  local grace_ms, more = grace_end(at, now_ms)
  if drop_expired(at, now_ms, grace_ms) or more then
    return nil, 1
  end
  local grant, _
  grant, _, more = grant_first(at, now_us, grace_ms, keep_ms, prefix, replaced)
  return grant and grant.receivers, more and 1 or 0
end

-- Gives the lock to the first waiter of the queue, or frees it. The acquisitions in replaced have it; if
-- that is nil, the lock is free. If nobody is in the queue, it notifies those who wait without one,
-- unless an earlier call did: when the lock was free before this call, and had no queue. Returns how
-- many clients received a message, or -1 if the user may not publish; 1 if more waiters must be dropped
-- before than one call may drop; and the refusal if Redis lets it neither grant nor free the lock.
--
-- If Redis refuses the grant, this does what it does if nobody is in the queue.
local function hand_on(at, replaced, is_queue, channel, in_cluster, keep_ms, prefix)
  local done, receivers, more = true, nil, 0
  if is_queue then
    done, receivers, more = pcall(grant_next, at, keep_ms, prefix, replaced)
  end
  if done and receivers then
    return receivers, more
  end
  local refused = replaced and refusal(redis.pcall('DEL', KEYS[at + 1]))
  if refused then
    return 0, 0, refused
  end
  if done and more == 1 then
    return 0, 1
  end
  return (replaced or is_queue) and notify_free(channel, in_cluster) or 0, 0
end
