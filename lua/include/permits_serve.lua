-- Gives free units to the first waiters of the queue, in order, as long as the
-- first fits: each for as long as its heartbeat lasts yet, and its client is told,
-- unless it is the one who asks. A waiter for more than the limit, which was
-- lowered, is sent away, or nobody behind it would ever be served. How many units
-- are free then, whether there is more to do than one call may, and the refusal if
-- there is one: whom it hit is out of the queue, and asks again.
local function permits_serve(at, free, now_us, grace_ms, limit, keep_ms, prefix, asking)
  local now_ms = math.floor(now_us / 1000)
  for _ = 1, 100 do
    local first, left_ms = queue_head(at, now_ms, grace_ms)
    local acquisition, units, _, about = queue_waiter(first or '')
    if not first or units > free and units <= limit or queue_remove(at, first) then
      return free, false
    end
    if units <= limit then
      local refused = permits_write(at, acquisition, units, about, now_us, now_ms + left_ms, keep_ms)
      if refused then
        return free, false, refused
      end
      free = free - units
      if acquisition ~= asking then
        queue_tell(prefix, acquisition, units)
      end
    end
  end
  return free, true
end
