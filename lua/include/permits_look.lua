-- Permits are entries of one sorted set. An entry <acquisition>#<2^level> stands
-- for that many units, and its score is level * 2^42 + the end of its lease in
-- server ms: so any number of units is a few entries, and what is in use is counted
-- level by level. Entries that are over are free as they are; some are dropped on
-- the way, at most as many as said, so that no call keeps the server for long. How
-- many units are in use, and how long until the next lease ends, -1: there is none. A
-- caller that looked passes the first entry and its score; an empty list: there is none.
local function permits_look(at, now_ms, most, first)
  local in_use, next_ms, from = 0, -1, 0
  most = math.min(most, budget.left)
  for _ = 0, 30 do
    first = first or redis.call('ZRANGEBYSCORE', KEYS[at + 1], from + 2147483648, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not first[1] then
      return in_use, next_ms
    end
    local level = math.floor(tonumber(first[2]) / 4398046511104)
    from = level * 4398046511104
    if tonumber(first[2]) <= from + now_ms then
      local swept = most > 0 and permits_sweep(at, from, now_ms, most) or 0
      most, budget.left = most - swept, budget.left - swept
      first = redis.call('ZRANGEBYSCORE', KEYS[at + 1], from + now_ms + 1, from + 4398046511103,
        'WITHSCORES', 'LIMIT', 0, 1)
    end
    if first[2] and (next_ms < 0 or tonumber(first[2]) - from - now_ms < next_ms) then
      next_ms = tonumber(first[2]) - from - now_ms
    end
    in_use = in_use + 2 ^ level * redis.call('ZCOUNT', KEYS[at + 1], from + now_ms + 1, from + 4398046511103)
    from, first = from + 4398046511104, nil
  end
  return in_use, next_ms
end
