-- The refusal of a server that takes no writes; nil where it takes them. A replica
-- may lack what its master has, so "gone" is only said after this. The write changes
-- nothing: no hash has that field, and a key of another type is met by those only
-- that take writes.
local function writes_refused(at)
  local reply = redis.pcall('HDEL', KEYS[at + 1], '')
  if is_other_type(reply) then
    return nil
  end
  return refusal(reply)
end
