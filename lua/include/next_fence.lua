-- The fence of a fresh grant: above the last one, and never below the server's
-- clock, so that it grows also when the stored one was lost. Nil without a last
-- one, and where Lua cannot add to it exactly (2^53).
local function next_fence(last, now_us)
  if last and last < 9007199254740991 then
    return math.max(last + 1, now_us)
  end
  return nil
end
