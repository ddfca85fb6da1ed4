-- One look at the lowest scores: the limit, and the first entries of permits, each with its
-- score. At most three members are reserved, so the list shows whether there is no entry, one
-- or more. Where the limit is nil, it is not among them, or something foreign is, and the
-- list shows nothing.
local function permits_lowest(at)
  local lowest, limit, entries = redis.pcall('ZRANGE', KEYS[at + 1], 0, 4, 'WITHSCORES'), nil, {}
  for i = 1, #lowest, 2 do
    if lowest[i] == 'limit' then
      limit = tonumber(lowest[i + 1])
    elseif lowest[i] ~= 'declared' and lowest[i] ~= 'resized' then
      entries[#entries + 1], entries[#entries + 2] = lowest[i], lowest[i + 1]
    end
  end
  if entries[1] and tonumber(entries[2]) < 2147483648 then
    return nil, {}
  end
  return limit, entries
end
