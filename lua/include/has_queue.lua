-- Whether somebody stands in a queue, dead or alive, from the ZCARD of it; and the
-- refusal if there is one. A key of another type is nobody's queue.
local function has_queue(length)
  if is_other_type(length) then
    return false
  end
  local refused = refusal(length)
  return not refused and length > 0, refused
end
