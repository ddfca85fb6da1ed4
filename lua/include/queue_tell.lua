-- Tells one waiter's client, and nobody else, that something became of the waiter:
-- a hint, upon which it asks. How many heard it: 0 when the client does not listen
-- yet; -1 when it may not be told.
local function queue_tell(prefix, acquisition)
  local channel = string.format('%s%s', prefix, string.match(acquisition, '^[^:]*'))
  local heard = redis.pcall('PUBLISH', channel, acquisition)
  if refusal(heard) then
    return -1
  end
  return heard
end
