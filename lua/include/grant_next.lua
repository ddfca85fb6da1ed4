-- Gives the free lock to the first waiter that lives, for the rest of its heartbeat
-- or its lease, whichever is less, and tells its client. Who has the lock now, or
-- nothing when nobody waits; the refusal if there is one; and whether more are to be
-- dropped before than one call may.
local function grant_next(at, now_us, grace_ms, keep_ms, prefix)
  local first, left_ms, more = queue_head(at, math.floor(now_us / 1000), grace_ms)
  if not first then
    return nil, nil, more
  end
  local fence, refused = take_fence(at, now_us, keep_ms)
  if not fence then
    return nil, refused
  end
  local acquisition, _, _, lease_ms, about = queue_waiter(first)
  lease_ms = math.min(lease_ms, left_ms)
  -- Out of the queue first: what is refused after that, the waiter asks for itself.
  refused = queue_remove(at, {first}) or write_grant(at, acquisition, about, lease_ms)
  if refused then
    return nil, refused
  end
  local heard = queue_tell(prefix, acquisition)
  return {acquisition = acquisition, about = about, ttl_ms = lease_ms, fence = fence, heard = heard}
end
