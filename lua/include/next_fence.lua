-- The fence of a fresh grant: above the stored one, and never below the
-- server's clock, so that it grows also when the stored one was lost. Nil when
-- the stored one is no whole number that Lua can add to exactly (2^53).
local function next_fence(stored, now_us)
  local last = tonumber(stored or 0)
  if last and last >= 0 and last < 9007199254740991 then
    return math.max(last + 1, now_us)
  end
  return nil
end
