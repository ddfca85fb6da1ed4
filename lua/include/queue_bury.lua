-- Drops waiters whose heartbeat has ended, and notes about removed ones that are
-- old (see fair/remove.lua: their scores are negative), as many as the budget
-- allows. Whether there are more.
local function queue_bury(at, now_ms, grace_ms)
  if grace_ms > now_ms then
    return false
  end
  local most = math.max(budget.left, 0)
  local found = redis.call('ZRANGEBYSCORE', KEYS[at + 4], -now_ms, now_ms, 'LIMIT', 0, most + 2)
  local dead, more = {}, false
  for i = 1, #found do
    if found[i] ~= 'grace' and #dead < most then
      dead[#dead + 1] = found[i]
    elseif found[i] ~= 'grace' then
      more = true
    end
  end
  budget.left = budget.left - #dead
  if #dead > 0 and queue_remove(at, dead) then
    return false
  end
  return more
end
