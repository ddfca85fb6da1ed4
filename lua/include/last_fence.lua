-- The stored fence as a number: 0 when there is none, nil when it is no whole
-- number that Lua has exactly (below 2^53).
local function last_fence(stored)
  local last = tonumber(stored or 0)
  if last and last >= 0 and last <= 9007199254740991 and last % 1 == 0 then
    return last
  end
  return nil
end
