-- head: the first waiter that lives, after the expired ones were dropped.
-- include budget queue

-- Drops waiters whose heartbeat has ended, and notes on removed waiters that are old, as many as
-- the budget allows. Returns whether there are more. The scores of notes are negative: see
-- queue/remove.lua.
local function drop_expired(at, now_ms, grace_ms)
  if grace_ms > now_ms then
    return false
  end
  local most = math.max(budget.left, 0)
  local found = redis.call('ZRANGEBYSCORE', KEYS[at + 4], -now_ms, now_ms, 'LIMIT', 0, most + 2)
  local expired, more = {}, false
  for i = 1, #found do
    if found[i] ~= 'grace' and #expired < most then
      expired[#expired + 1] = found[i]
    elseif found[i] ~= 'grace' then
      more = true
    end
  end
  budget.left = budget.left - #expired
  if #expired > 0 and remove_waiters(at, expired) then
    return false
  end
  return more
end

-- The first waiter of the queue, after drop_expired, and for how long its heartbeat lasts: never
-- more than one heartbeat, also if somebody set the clock back. Returns nothing if nobody waits.
-- It drops waiters before it that have no heartbeat, because Redis lost that key. They queue
-- again. Also returns whether there are more of them than the budget allows. Then it does not know
-- the first.
local function first_waiter(at, now_ms, grace_ms)
  if is_emptied(at) then
    return nil, nil, false
  end
  local lost = {}
  for i = 0, math.max(budget.left, 0) do
    local first = redis.call('ZRANGE', KEYS[at + 3], i, i)[1]
    local _, _, heartbeat_ms = parse_waiter(first or '')
    local end_ms = heartbeat_ms and redis.call('ZSCORE', KEYS[at + 4], first)
    if end_ms or not first then
      if i > 0 then
        budget.left = budget.left - 2 * i
        remove_waiters(at, lost)
      end
      return first, end_ms and math.max(math.min(math.max(tonumber(end_ms), grace_ms) - now_ms, heartbeat_ms), 1), false
    end
    lost[i + 1] = first
  end
  budget.left = 0
  remove_waiters(at, lost)
  return nil, nil, not is_emptied(at) and redis.call('ZCARD', KEYS[at + 3]) > 0
end
