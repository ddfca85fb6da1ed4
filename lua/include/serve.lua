-- serve: free units go to the first waiters.
-- include errors budget notify queue grace head units permits

-- Gives free units to a waiter, which leaves the queue, and returns the refusal if there is one.
-- Then nothing has changed: the waiter keeps its place.
local function grant_units(at, member, now_us, lease_ms, keep_ms)
  local acquisition, units, _, _, description = parse_waiter(member)
  local refused = write_permit(at, acquisition, units, description, now_us, lease_ms, keep_ms)
  if refused then
    return refused
  end
  refused = remove_waiters(at, {member})
  if refused then
    undo_permit(at, acquisition, units)
  end
  return refused
end

-- Grants free units to the first waiters of the queue, in order, as long as the first fits. The
-- first lease is the rest of the heartbeat or the lease, whichever is shorter. It notifies their
-- clients, but not the one that asks. If somebody lowered the limit and the first wants more than
-- that, it notifies that client, which then learns of the limit and leaves.
--
-- Returns how many units are free then; whether there is more to do than one call may do; for how
-- long the first, which does not fit, counts as live; and the refusal if there is one, with the
-- waiter whose grant was refused. That waiter keeps its place.
local function serve_queue(at, free, now_us, grace_ms, limit, keep_ms, prefix, asking)
  for _ = 0, math.max(budget.left, 0) do
    local first, left_ms, more = first_waiter(at, math.floor(now_us / 1000), grace_ms)
    local acquisition, units, _, lease_ms = parse_waiter(first or '')
    if first and units > limit then
      notify_waiter(prefix, acquisition, KEYS[at + 3])
    end
    if not first or units > free or budget.left < 10 then
      return free, more or first and units <= free, first and left_ms
    end
    budget.left = budget.left - 10
    local refused = grant_units(at, first, now_us, math.min(left_ms, lease_ms), keep_ms)
    if refused then
      return free, false, nil, refused, first
    end
    free = free - units
    if acquisition ~= asking then
      notify_waiter(prefix, acquisition, KEYS[at + 3])
    end
  end
  return free, true
end

-- Drops what has expired, and serves the queue if there is one. Returns 1 if there is more to do
-- than one call may do, else 0.
local function drop_and_serve(at, now_us, limit, is_queue, keep_ms, prefix)
  local now_ms = math.floor(now_us / 1000)
  local in_use = count_units(at, now_ms, 200)
  if not limit or not is_queue or refusal(redis.pcall('ZCARD', KEYS[at + 4])) then
    return 0
  end
  local grace_ms, more = grace_end(at, now_ms)
  if drop_expired(at, now_ms, grace_ms) or more then
    return 1
  end
  local _
  _, more = serve_queue(at, limit - in_use, now_us, grace_ms, limit, keep_ms, prefix, '')
  return more and 1 or 0
end

-- Does what follows when units may have become free, and returns what drop_and_serve returns. It
-- never raises an error, because the units are free by now. If Redis refuses a command, it serves
-- nobody else.
local function serve_after_release(at, now_us, limit, is_queue, keep_ms, prefix)
  local done, more = pcall(drop_and_serve, at, now_us, limit, is_queue, keep_ms, prefix)
  return done and more or 0
end
