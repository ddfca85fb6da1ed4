-- Gives free units to the first waiters of the queue, in order, as long as the
-- first fits: each for the rest of its heartbeat or its lease, whichever is less, and
-- its client is told, unless it is the one who asks. The first may want more than the
-- limit, which was lowered: its client is told, so that it beats, hears of the limit
-- and leaves. How many units are free then; whether there is more to do than one call
-- may; until when the first, which does not fit, counts as living; and the refusal if
-- there is one: whom it hit is out of the queue, and asks again.
local function permits_serve(at, free, now_us, grace_ms, limit, keep_ms, prefix, asking)
  for _ = 0, math.max(budget.left, 0) do
    local first, left_ms, more = queue_head(at, math.floor(now_us / 1000), grace_ms)
    local acquisition, units, _, lease_ms, about = queue_waiter(first or '')
    if first and units > limit then
      queue_tell(prefix, acquisition)
    end
    if not first or units > free or budget.left < 10 then
      return free, more or first and units <= free, first and left_ms
    end
    budget.left = budget.left - 10
    local refused = queue_remove(at, {first})
      or permits_write(at, acquisition, units, about, now_us, math.min(left_ms, lease_ms), keep_ms)
    if refused then
      return free, false, nil, refused
    end
    free = free - units
    if acquisition ~= asking then
      queue_tell(prefix, acquisition)
    end
  end
  return free, true
end
